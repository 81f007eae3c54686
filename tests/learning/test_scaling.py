"""Standardised coordinates: the chain rule by differences, and columns without a spread."""

import pytest
import torch
from tests.learning.problems import draw, random_data
from tests.references import assert_close

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.scaling import Scaling

UNITS_X, UNITS_Y = torch.tensor([1e-3, 1.0, 1e4]).double(), torch.tensor([1e5, 1e-2]).double()
OFFSET = torch.tensor([0.0, 5.0, -1e6]).double()


def function(x):
    """[N, 3] in odd units to [N, 2] in odd units."""
    s = (x - OFFSET) / UNITS_X
    return torch.stack([s[:, 0] * s[:, 1] + s[:, 2] ** 3, s.sin().sum(1)], 1) * UNITS_Y + 7.0


def labelled(rows=40):
    """`function` with exact first and second derivatives."""
    s, v = draw(rows, 3), draw(rows, 3, seed=1)
    x, v = OFFSET + s * UNITS_X, v * UNITS_X
    jac = torch.stack([torch.stack([s[:, 1], s[:, 0], 3 * s[:, 2] ** 2], 1), s.cos()], 1)
    jac = jac * (UNITS_Y[:, None] / UNITS_X)
    hessian = torch.zeros(rows, 2, 3, 3).double()
    hessian[:, 0, 0, 1] = hessian[:, 0, 1, 0] = 1.0
    hessian[:, 0, 2, 2] = 6 * s[:, 2]
    hessian[:, 1] = torch.diag_embed(-s.sin())
    hessian = hessian * (UNITS_Y[:, None, None] / (UNITS_X[:, None] * UNITS_X))
    return DifferentialData(
        x, function(x), jac, directions=v, dydv=torch.einsum("nkd,nd->nk", jac, v),
        hvp=torch.einsum("nkde,ne->nkd", hessian, v),
    )  # fmt: skip


def central(f, x, step):
    """∂f/∂x along each input by central differences, stacked last."""
    steps = step * torch.eye(x.shape[1]).double()
    return torch.stack([(f(x + h) - f(x - h)) / (2 * step) for h in steps], -1)


class TestChainRule:
    def test_labels_are_the_derivatives_of_the_scaled_function(self):
        data = labelled()
        scaling = Scaling.from_data(data)
        scaled = scaling.scale(data)

        def composed(x):
            return (
                function(x * scaling.x_scale + scaling.x_shift) - scaling.y_shift
            ) / scaling.y_scale

        assert_close(composed(scaled.x), scaled.y, tolerance=1e-9)
        # Step h: the error is near h² plus the rounding of x = -1e6, 1e-10 over h.
        jac = central(composed, scaled.x, 1e-4)
        assert_close(jac, scaled.dydx, tolerance=1e-5)
        assert_close(
            torch.einsum("nkd,nd->nk", jac, scaled.directions), scaled.dydv, tolerance=1e-5
        )
        hessian = central(lambda x: central(composed, x, 1e-3), scaled.x, 1e-3)
        assert_close(
            torch.einsum("nkde,ne->nkd", hessian, scaled.directions), scaled.hvp, tolerance=1e-3
        )

    def test_predictions_come_back_in_the_users_units(self):
        data = labelled()
        scaling = Scaling.from_data(data)
        scaled = scaling.scale(data)

        assert_close(scaling.unscale_y(scaled.y), data.y)
        assert_close(scaling.unscale_dydx(scaled.dydx), data.dydx)
        hessian = draw(4, 2, 3, 3)
        factor = scaling.y_scale[:, None, None] / (scaling.x_scale[:, None] * scaling.x_scale)
        assert_close(scaling.unscale_hessian(hessian), hessian * factor)

    def test_standardised_inputs_and_values(self):
        scaled = Scaling.from_data(labelled()).scale(labelled())

        assert_close(scaled.x.mean(0).abs() + 1, torch.ones(3).double(), tolerance=1e-9)
        assert_close(scaled.x.std(0, correction=0), torch.ones(3).double(), tolerance=1e-9)
        assert_close(scaled.y.std(0, correction=0), torch.ones(2).double(), tolerance=1e-9)

    def test_a_huge_offset_is_gone_before_float32(self):
        x = 1e6 + 1e-2 * draw(200, 1)
        scaled = Scaling.from_data(DifferentialData(x, x)).scale_x(x).float()

        assert float(scaled.std(correction=0)) == pytest.approx(1.0, rel=1e-6)
        assert len(scaled.unique()) == 200


def constant(value, **more):
    """Two inputs, the second constant."""
    x = torch.cat([draw(50, 1), torch.full((50, 1), value).double()], 1)
    return DifferentialData(x, x[:, :1].sin(), **more)


class TestConstantInputs:
    @pytest.mark.parametrize("value", [0.0, 5.0, 1e6, 1 / 3, -1e-8])
    def test_ignored_without_a_derivative(self, value):
        scaling = Scaling.from_data(constant(value))

        assert scaling.ignored.tolist() == [False, True]
        # A point off the constant changes nothing, and its derivative is zero.
        moved = scaling.scale_x(torch.tensor([[0.3, value + 1.0]]).double())
        assert torch.equal(moved[:, 1], torch.zeros(1).double())
        assert not scaling.unscale_dydx(torch.ones(1, 1, 2).double())[..., 1].any()

    @pytest.mark.parametrize("noise", [0.0, 1e-12])
    def test_rounding_is_not_variation(self, noise):
        data = constant(3.7)
        data.x[:, 1] += noise * draw(50, seed=3)

        assert Scaling.from_data(data).ignored.tolist() == [False, True]

    def test_a_small_spread_is_variation(self):
        data = constant(3.7)
        data.x[:, 1] += 1e-6 * draw(50, seed=3)

        assert not Scaling.from_data(data).ignored.any()

    def test_kept_where_its_derivative_is_known(self):
        dydx = torch.stack([torch.ones(50, 1), torch.full((50, 1), 4.0)], 2).double()
        data = constant(3.7, dydx=dydx)
        scaling = Scaling.from_data(data)

        assert not scaling.ignored.any()
        assert_close(scaling.x_scale[1], scaling.y_scale[0] / 4.0)
        assert_close(scaling.scale(data).dydx[:, 0, 1].mean(), torch.tensor(1.0).double())

    @pytest.mark.parametrize("slope", [0.0, float("nan")])
    def test_ignored_where_its_derivative_is_zero_or_unknown(self, slope):
        dydx = torch.stack([torch.ones(50, 1), torch.full((50, 1), slope)], 2).double()

        assert Scaling.from_data(constant(3.7, dydx=dydx)).ignored.tolist() == [False, True]

    def test_ignored_where_its_derivative_is_noise(self):
        dydx = torch.stack([torch.ones(50, 1).double(), 1e-6 * draw(50, 1, seed=7)], 2)

        assert Scaling.from_data(constant(3.7, dydx=dydx)).ignored.tolist() == [False, True]

    def test_every_input_constant(self):
        data = DifferentialData(torch.ones(5, 2).double(), draw(5, 1))

        assert Scaling.from_data(data).ignored.all()
        assert Scaling.from_data(data).scale(data).x.isfinite().all()


class TestOutputs:
    @pytest.mark.parametrize("value", [0.0, 1.0, 1e8, 1 / 3])
    def test_constant_values_have_scale_one(self, value):
        x = draw(30, 2)
        y = torch.full((30, 1), value).double()

        assert Scaling.from_data(DifferentialData(x, y)).y_scale.tolist() == [1.0]

    def test_unknown_values_are_left_out(self):
        data = labelled()
        data.y[::2, 0] = torch.nan
        scaling = Scaling.from_data(data)

        assert_close(scaling.y_shift[0], data.y[1::2, 0].mean())
        assert_close(scaling.y_scale[0], data.y[1::2, 0].std(correction=0))

    def test_no_value_known_takes_the_size_of_the_derivatives(self):
        x = draw(500, 1) * 10.0
        data = DifferentialData(
            x, torch.full_like(x, torch.nan), torch.full((500, 1, 1), 3.0).double()
        )

        assert_close(Scaling.from_data(data).y_scale, 3.0 * x.std(correction=0)[None])

    def test_nothing_known_of_an_output(self):
        data = random_data()
        data.y[:, 1] = torch.nan
        data.dydx[:, 1] = torch.nan
        scaling = Scaling.from_data(DifferentialData(data.x, data.y, data.dydx))

        assert scaling.y_shift[1] == 0
        assert scaling.y_scale[1] == 1


class TestUnits:
    @pytest.mark.parametrize("exponents", [(3, -5, 10, 2, -7), (-20, 0, 1, 30, 4)])
    def test_standardised_data_do_not_change_by_a_bit(self, exponents):
        """Powers of two are exact, so any difference would be a mistake and no rounding."""
        *to_x, k0, k1 = (2.0**e for e in exponents)
        per_x, per_y = torch.tensor(to_x).double(), torch.tensor([k0, k1]).double()
        data = random_data(rows=20)
        slope = per_y[:, None] / per_x
        other = DifferentialData(
            data.x * per_x, data.y * per_y, data.dydx * slope, data.directions * per_x,
            data.dydv * per_y, data.hvp * slope,
        )  # fmt: skip
        one, two = (Scaling.from_data(d).scale(d) for d in (data, other))

        for name in ("x", "y", "dydx", "directions", "dydv", "hvp"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name

    def test_the_loss_does_not_change_with_them(self):
        data, guess = random_data(rows=20), random_data(rows=20, seed=50)
        per_x, per_y = torch.tensor([1e-3, 7.0, 1e5]).double(), torch.tensor([1e4, 3e-7]).double()
        slope = per_y[:, None] / per_x
        one = DifferentialLoss.from_data(data.x, data.y, data.dydx)
        two = DifferentialLoss.from_data(data.x * per_x, data.y * per_y, data.dydx * slope)

        assert_close(
            two(guess.y * per_y, data.y * per_y, guess.dydx * slope, data.dydx * slope),
            one(guess.y, data.y, guess.dydx, data.dydx),
        )
