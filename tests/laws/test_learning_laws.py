"""Laws of learning: they hold for any data, so the data are drawn."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.learning.problems import SMOOTH, as_sequential, draw, field, mlp, random_data
from tests.references import assert_close

from pullback import DifferentialRegressor
from pullback.derivatives import gradient_by_differences
from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.scaling import Scaling

FEW = settings(max_examples=12, deadline=None)
MANY = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**31 - 1)
# Powers of two change no bit of a mantissa: what is not equal to the bit is a mistake.
UNITS = st.integers(-20, 20).map(lambda e: 2.0**e)
X, Y, DYDX = field(40)


def model(optimizer, seed=0, **more):
    fixed = {"hidden": (6,), "activation": "tanh", "epochs": 12, "dtype": "float64", **more}
    return DifferentialRegressor(
        **fixed, optimizer=optimizer, random_state=seed, check_labels=False
    )


class TestUnits:
    @pytest.mark.parametrize("optimizer", ["adam", "lbfgs", "broyden"])
    @given(per_x=st.tuples(UNITS, UNITS), per_y=UNITS, seed=st.integers(0, 99))
    @FEW
    def test_predictions_follow_the_units_to_the_bit(self, optimizer, per_x, per_y, seed):
        per_x = np.array(per_x)
        one = model(optimizer, seed).fit(X, Y, DYDX)
        two = model(optimizer, seed).fit(X * per_x, Y * per_y, DYDX * per_y / per_x)
        y, dydx = one.predict(X, return_gradient=True)
        y_two, dydx_two = two.predict(X * per_x, return_gradient=True)

        assert np.array_equal(y_two, y * per_y)
        assert np.array_equal(dydx_two, dydx * per_y / per_x)
        hessian = one.predict_hessian(X) * per_y / per_x[:, None] / per_x
        assert np.array_equal(two.predict_hessian(X * per_x), hessian)

    @pytest.mark.parametrize("optimizer", ["adam", "lbfgs", "broyden"])
    def test_and_to_rounding_where_they_are_no_powers_of_two(self, optimizer):
        per_x, per_y = np.array([1e-3, 7.0]), 1e5
        one = model(optimizer).fit(X, Y, DYDX)
        two = model(optimizer).fit(X * per_x, Y * per_y, DYDX * per_y / per_x)

        np.testing.assert_allclose(
            two.predict(X * per_x), one.predict(X) * per_y, rtol=1e-6, atol=1e-2
        )

    @given(per_x=st.tuples(UNITS, UNITS, UNITS), per_y=st.tuples(UNITS, UNITS), seed=SEEDS)
    @MANY
    def test_the_loss_has_no_unit(self, per_x, per_y, seed):
        per_x, per_y = torch.tensor(per_x).double(), torch.tensor(per_y).double()
        data, guess, slope = (
            random_data(seed=seed % 1000),
            random_data(seed=7),
            per_y[:, None] / per_x,
        )
        one = DifferentialLoss.from_data(data.x, data.y, data.dydx)
        two = DifferentialLoss.from_data(data.x * per_x, data.y * per_y, data.dydx * slope)

        assert torch.equal(
            two(guess.y * per_y, data.y * per_y, guess.dydx * slope, data.dydx * slope),
            one(guess.y, data.y, guess.dydx, data.dydx),
        )


class TestOwnDerivatives:
    @given(
        seed=SEEDS, exponents=st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-4, 4))
    )
    @FEW
    def test_a_predicted_gradient_is_that_of_the_prediction(self, seed, exponents):
        per_x, per_y = 10.0 ** np.array(exponents[:2]), 10.0 ** exponents[2]
        fitted = model("lbfgs", seed).fit(X * per_x, Y * per_y, DYDX * per_y / per_x)

        def in_units_of_one(x):
            return torch.from_numpy(fitted.predict(x.numpy() * per_x) / per_y)

        expected = gradient_by_differences(in_units_of_one, torch.from_numpy(X[:10]))
        got = torch.from_numpy(fitted.predict_gradient(X[:10] * per_x) * per_x / per_y)
        assert_close(got, expected, tolerance=1e-6)

    @given(
        seed=st.integers(0, 999), activation=st.sampled_from(SMOOTH), depth=st.integers(0, 3),
        outputs=st.integers(1, 3), omega=st.sampled_from([0.5, 1.0, 3.0]),
    )  # fmt: skip
    @MANY
    def test_both_routes_of_a_twin_agree(self, seed, activation, depth, outputs, omega):
        net = mlp(3, outputs, (4,) * depth, activation, seed, omega_0=omega)
        x, v = draw(3, 3, seed=seed), draw(3, 3, seed=seed + 1)

        for got, expected in zip(
            Twin(as_sequential(net)).value_jacobian_and_hvp(x, v),
            Twin(net).value_jacobian_and_hvp(x, v),
            strict=True,
        ):
            assert_close(got, expected, tolerance=1e-11)

    @given(seed=st.integers(0, 999))
    @MANY
    def test_second_derivatives_are_symmetric_and_linear_in_the_direction(self, seed):
        net, x = mlp(outputs=2, seed=seed), draw(3, 3, seed=seed)
        u, v = draw(3, 3, seed=seed + 1), draw(3, 3, seed=seed + 2)
        along = [net.value_jacobian_and_hvp(x, w)[2] for w in (u, v, 2 * u - 3 * v)]

        assert_close(
            torch.einsum("nkd,nd->nk", along[0], v), torch.einsum("nkd,nd->nk", along[1], u),
            tolerance=1e-11,
        )  # fmt: skip
        assert_close(along[2], 2 * along[0] - 3 * along[1], tolerance=1e-11)


class TestLoss:
    @given(seed=st.integers(0, 999), hidden=st.lists(st.booleans(), min_size=36, max_size=36))
    @MANY
    def test_an_unknown_label_is_as_good_as_any_other_unknown_label(self, seed, hidden):
        """Whatever is predicted there changes neither the loss nor any gradient."""
        data, hide = random_data(seed=seed), torch.tensor(hidden).reshape(6, 2, 3)
        label = torch.where(hide, torch.nan, data.dydx)
        loss = DifferentialLoss.from_data(data.x, data.y, label)
        guess = random_data(seed=3).dydx
        results = []
        for filled in (guess, torch.where(hide, 1e30, guess)):
            leaf = filled.clone().requires_grad_()
            value = loss((1.0 * data.y).requires_grad_(), data.y, leaf, label)
            value.backward()
            results.append((value.detach(), leaf.grad))

        assert torch.equal(results[0][0], results[1][0])
        assert torch.equal(results[0][1], results[1][1])
        assert not results[0][1][hide].any()

    @given(seed=st.integers(0, 999), order=st.permutations(range(6)))
    @MANY
    def test_the_order_of_rows_does_not_matter(self, seed, order):
        data, guess = random_data(seed=seed), random_data(seed=3)
        shuffled, other = data.take(torch.tensor(order)), guess.take(torch.tensor(order))
        one, two = DifferentialLoss.of(data), DifferentialLoss.of(shuffled)

        assert_close(
            two(other.y, shuffled.y, other.dydx, shuffled.dydx),
            one(guess.y, data.y, guess.dydx, data.dydx),
        )

    @given(seed=st.integers(0, 999), counts=st.lists(st.integers(1, 4), min_size=6, max_size=6))
    @MANY
    def test_weights_are_repeated_rows(self, seed, counts):
        data, guess, weight = (
            random_data(seed=seed),
            random_data(seed=3),
            torch.tensor(counts).double(),
        )
        loss, rows = (
            DifferentialLoss.of(data),
            torch.arange(6).repeat_interleave(torch.tensor(counts)),
        )
        many, others = data.take(rows), guess.take(rows)

        assert_close(
            loss(guess.y, data.y, guess.dydx, data.dydx, sample_weight=weight / weight.mean()),
            loss(others.y, many.y, others.dydx, many.dydx),
            tolerance=1e-12,
        )

    @given(seed=st.integers(0, 999))
    @MANY
    def test_it_is_zero_for_the_labels_and_positive_elsewhere(self, seed):
        data = random_data(seed=seed)
        loss = DifferentialLoss.of(data)

        assert float(loss(data.y, data.y, data.dydx, data.dydx)) == 0.0
        assert float(loss(data.y + 1e-6, data.y, data.dydx, data.dydx)) > 0.0
        assert float(loss(data.y, data.y, data.dydx + 1e-6, data.dydx)) > 0.0


@given(
    seed=st.integers(0, 999), constant=st.lists(st.booleans(), min_size=3, max_size=3),
    offset=st.sampled_from([0.0, 1.0, -1e6]), size=st.sampled_from([1e-8, 1.0, 1e8]),
)  # fmt: skip
@MANY
def test_scaling_there_and_back(seed, constant, offset, size):
    """Inputs that vary come back; those that do not are ignored, and nothing is ever infinite."""
    x = offset + size * max(abs(offset), 1.0) * draw(20, 3, seed=seed)
    x[:, torch.tensor(constant)] = offset
    data = DifferentialData(x, draw(20, 2, seed=seed + 1))
    scaling = Scaling.from_data(data)
    scaled = scaling.scale(data)

    assert scaling.ignored.tolist() == constant
    assert scaled.x.isfinite().all()
    back = scaled.x * scaling.x_scale + scaling.x_shift
    assert_close(back, x, tolerance=1e-12)
    assert_close(scaling.unscale_y(scaled.y), data.y, tolerance=1e-12)
