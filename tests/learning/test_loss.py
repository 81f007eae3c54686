"""The differential loss: the published formula, unknown labels, and every weight it reaches."""

import math

import pytest
import torch
from tests.learning.problems import differences_in_weights, draw, mlp, random_data
from tests.references import assert_close

from pullback.errors import InputError, PiecewiseLinearWarning, ShapeError
from pullback.learning.data import DifferentialData
from pullback.learning.loss import FLOOR, DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.optimizers import loss_terms
from pullback.learning.scaling import Scaling

KINDS = {
    "value": ("y",),
    "derivative": ("dydx",),
    "directional": ("directions", "dydv"),
    "second_order": ("directions", "hvp"),
}


def only(kind, data):
    """Data with labels of one kind; the values are unknown where they are not asked for."""
    y = data.y if kind == "value" else torch.full_like(data.y, torch.nan)
    return DifferentialData(data.x, **{"y": y, **{n: getattr(data, n) for n in KINDS[kind]}})


def total(twin, loss, data):
    return torch.stack(list(loss_terms(twin, loss, data).values())).sum()


class TestReachesTheWeights:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("activation", ["tanh", "softplus", "sin"])
    def test_gradient_of_each_kind_equals_differences(self, kind, activation):
        data = only(kind, random_data())
        twin = Twin(mlp(outputs=2, hidden=(4, 3), activation=activation, omega_0=2))
        loss = DifferentialLoss.of(data)
        total(twin, loss, data).backward()

        expected = differences_in_weights(lambda: total(twin, loss, data), twin)
        largest = max(float(slope.abs().max()) for slope in expected.values())
        for name, parameter in twin.named_parameters():
            # Differences with step 1e-5: their own error is near 1e-9 of the largest.
            off = (parameter.grad - expected[name]).abs().max()
            assert off < 1e-7 * largest, f"{name} off by {off:.2g}"
            output_bias = name == "module.layers.2.bias"
            reached = kind == "value" or not output_bias
            assert bool((parameter.grad.abs() > 1e-6 * largest).any()) == reached, name
            if not reached:
                assert not parameter.grad.any()

    @pytest.mark.parametrize(
        "wrong",
        [lambda g: 1.001 * g, lambda g: g.roll(1, 0), lambda g: g.flip(-1)],
        ids=["x1.001", "shifted by a row", "transposed"],
    )
    def test_the_comparison_would_see_a_wrong_gradient(self, wrong):
        data = only("derivative", random_data())
        twin = Twin(mlp(outputs=2, hidden=(3, 3)))
        loss = DifferentialLoss.of(data)
        total(twin, loss, data).backward()
        expected = differences_in_weights(lambda: total(twin, loss, data), twin)
        weight = "module.layers.1.weight"
        gradient = dict(twin.named_parameters())[weight].grad
        assert_close(gradient, expected[weight], tolerance=1e-7)

        with pytest.raises(AssertionError, match="off by"):
            assert_close(wrong(gradient), expected[weight], tolerance=1e-7)

    def test_relu_hides_its_biases_from_derivatives(self):
        with pytest.warns(PiecewiseLinearWarning):
            twin = Twin(mlp(outputs=2, activation="relu"))
        data = only("derivative", random_data())
        total(twin, DifferentialLoss.of(data), data).backward()

        for name, parameter in twin.named_parameters():
            assert bool(parameter.grad.any()) == name.endswith("weight"), name

    @pytest.mark.parametrize("cut", [lambda t: t.detach(), lambda t: t.detach().clone()])
    def test_a_detached_derivative_is_refused(self, cut):
        data = random_data()
        loss = DifferentialLoss.of(data)
        y, jac = Twin(mlp(outputs=2))(data.x)

        with pytest.raises(InputError, match=r"carry no graph.*create_graph"):
            loss(y, data.y, cut(jac), data.dydx)
        assert not loss(y.detach(), data.y, cut(jac), data.dydx).requires_grad

    @pytest.mark.parametrize("kind", ["directional", "second_order"])
    def test_other_detached_predictions_too(self, kind):
        data = random_data()
        y, jac, hvp = Twin(mlp(outputs=2)).value_jacobian_and_hvp(data.x, data.directions)
        along = torch.einsum("nkd,nd->nk", jac, data.directions)
        given = {
            "directional": {"dydv_hat": along.detach(), "dydv": data.dydv},
            "second_order": {"hvp_hat": hvp.detach(), "hvp": data.hvp},
        }[kind]

        with pytest.raises(InputError, match=f"{kind} predictions carry no graph"):
            DifferentialLoss.of(data).terms(y, data.y, **given)


def published(y_hat, y, z_hat, z, lam):
    """α·MSE(values) + β·mean_j MSE(λ_j derivatives) of Huge & Savine, on standardised data."""
    alpha = 1.0 / (1.0 + lam * z.shape[1])
    scales = 1.0 / z.square().mean(0).sqrt()
    values = (y_hat - y).square().mean()
    return alpha * values + (1.0 - alpha) * ((z_hat - z) * scales).square().mean()


class TestFormula:
    @pytest.mark.parametrize("lam", [1.0, 0.3, 10.0])
    def test_equals_the_published_one_when_all_is_known(self, lam):
        data = random_data(rows=20, outputs=1)
        loss = DifferentialLoss.from_data(
            data.x, data.y, data.dydx, derivative_weight=lam, floor=0.0
        )
        y_hat, z_hat = draw(20, 1, seed=11), draw(20, 1, 3, seed=12)
        scaling = Scaling.from_data(data)
        slope = scaling.x_scale / scaling.y_scale[:, None]

        expected = published(
            y_hat / scaling.y_scale,
            data.y / scaling.y_scale,
            (z_hat * slope)[:, 0],
            (data.dydx * slope)[:, 0],
            lam,
        )
        assert_close(loss(y_hat, data.y, z_hat, data.dydx), expected, tolerance=1e-12)

    def test_equals_a_loop_over_known_labels(self):
        """All kinds at once, a third of the labels unknown, weights of rows and derivatives."""
        data = punctured(random_data(rows=9), share=1 / 3)
        data = DifferentialData(
            **{**vars(data), "sample_weight": draw(9).abs(), "dydx_weight": draw(9, 2, 3).abs()}
        )
        loss = DifferentialLoss.of(data, derivative_weight=0.7, second_order_weight=0.2)
        predicted = random_data(rows=9, seed=50)
        got = loss.terms(
            predicted.y, data.y, predicted.dydx, data.dydx, dydv_hat=predicted.dydv,
            dydv=data.dydv, hvp_hat=predicted.hvp, hvp=data.hvp,
            sample_weight=data.sample_weight, dydx_weight=data.dydx_weight,
        )  # fmt: skip

        expected = loss_by_loop(predicted, data, lam=0.7, second=0.2, floor=FLOOR)
        for kind, term in expected.items():
            assert_close(got[kind], torch.tensor(term, dtype=torch.float64), tolerance=1e-12)

    def test_a_hand_computed_case(self):
        x = torch.tensor([[0.0], [2.0]])
        y = torch.tensor([[1.0], [5.0]])  # deviation 2
        z = torch.tensor([[2.0], [4.0]])  # mean square 10 in x's and y's units: s_x = 1, s_y = 2
        loss = DifferentialLoss.from_data(x, y, z, floor=0.0)

        assert loss.entries == 2.0
        # Errors 2 and 0 in values, 0 and 5 in derivatives: (1 + 25/10) / (2 rows · 2 numbers).
        got = loss(
            y + torch.tensor([[2.0], [0.0]]), y, z[:, None] + torch.tensor([[[0.0]], [[5.0]]]), z
        )
        assert float(got) == pytest.approx(3.5 / 4)


def loss_by_loop(predicted, data, *, lam, second, floor):
    scaling = Scaling.from_data(data)
    s_x, s_y = scaling.x_scale.tolist(), scaling.y_scale.tolist()

    def mean_square(labels, j_of, k):
        found = [float(v) for v in labels if not math.isnan(v)]
        return sum((v * j_of / s_y[k]) ** 2 for v in found) / len(found)

    def factors(labels, slopes):
        table = {}
        for k in range(2):
            squares = [mean_square(labels[:, k, j], slopes[j], k) for j in range(labels.shape[2])]
            for j, square in enumerate(squares):
                table[k, j] = (slopes[j] / s_y[k]) ** 2 / (square + floor * max(squares))
        return table

    numbers = {"y": 1.0, "dydx": lam, "dydv": lam, "hvp": second}
    count = sum(w * int((~getattr(data, n).isnan()).sum()) for n, w in numbers.items())
    plans = {
        "value": ("y", {(k, 0): 1.0 / s_y[k] ** 2 for k in range(2)}, 1.0),
        "derivative": ("dydx", factors(data.dydx, s_x), lam),
        "directional": ("dydv", factors(data.dydv[:, :, None], [1.0]), lam),
        "second_order": ("hvp", factors(data.hvp, s_x), second),
    }
    terms = {}
    for kind, (name, table, weight) in plans.items():
        label, guess, sum_ = getattr(data, name), getattr(predicted, name), 0.0
        label, guess = (t if t.ndim == 3 else t[:, :, None] for t in (label, guess))
        for n in range(len(label)):
            for k, j in table:
                if math.isnan(label[n, k, j]):
                    continue
                error = weight * table[k, j] * float(guess[n, k, j] - label[n, k, j]) ** 2
                error *= float(data.sample_weight[n])
                if kind == "derivative":
                    error *= float(data.dydx_weight[n, k, j])
                sum_ += error
        terms[kind] = sum_ / count
    return terms


def punctured(data, share, seed=3):
    """Labels set to NaN at random."""
    generator = torch.Generator().manual_seed(seed)

    def hide(label):
        return torch.where(torch.rand(label.shape, generator=generator) < share, torch.nan, label)

    return DifferentialData(
        data.x, hide(data.y), hide(data.dydx), data.directions, hide(data.dydv), hide(data.hvp)
    )


def hide_value(data):
    data.y[2] = torch.nan


def hide_derivatives(data):
    data.dydx[2] = torch.nan


def hide_rows_of_each(data):
    data.y[:3] = torch.nan
    data.dydx[3:] = torch.nan


def hide_column(data):
    data.dydx[:, :, 1] = torch.nan


def hide_output(data):
    data.y[:, 1] = torch.nan
    data.dydx[:, 1] = torch.nan


def hide_all_values(data):
    data.y[:] = torch.nan


def hide_all_derivatives(data):
    data.dydx[:] = torch.nan


def hide_one_entry(data):
    data.dydx[0, 1, 2] = torch.nan


HIDING = [
    hide_value, hide_derivatives, hide_rows_of_each, hide_column, hide_output, hide_all_values,
    hide_all_derivatives, hide_one_entry,
]  # fmt: skip


class TestUnknown:
    @pytest.mark.parametrize("hide", HIDING)
    def test_counts_only_what_is_known_and_trains_on_it(self, hide):
        data = random_data()
        data = DifferentialData(data.x, data.y.clone(), data.dydx.clone())
        hide(data)
        loss = DifferentialLoss.of(data, floor=0.0)
        twin = Twin(mlp(outputs=2))
        y_hat, z_hat = twin(data.x)
        got = loss(y_hat, data.y, z_hat, data.dydx)
        got.backward()

        assert got.isfinite()
        assert all(p.grad.isfinite().all() for p in twin.parameters())
        known = [~t.isnan() for t in (data.y, data.dydx)]
        errors = [
            (loss.value * (y_hat - data.y) ** 2)[known[0]].sum(),
            (loss.derivative * (z_hat - data.dydx) ** 2)[known[1]].sum(),
        ]
        assert_close(got, sum(errors) / sum(k.sum() for k in known), tolerance=1e-12)

    def test_a_wild_prediction_of_an_unknown_label_does_no_harm(self):
        data = random_data()
        data.dydx[1] = torch.nan
        guess = data.dydx.nan_to_num(nan=torch.inf).requires_grad_()
        y_hat = (1.0 * data.y).requires_grad_()
        DifferentialLoss.of(data)(y_hat, data.y, guess, data.dydx).backward()

        assert guess.grad.isfinite().all()

    def test_no_label_at_all_is_refused(self):
        x, nothing = draw(5, 2), torch.full((5, 1), torch.nan).double()

        for dydx in (None, torch.full((5, 2), torch.nan).double()):
            with pytest.raises(InputError, match="no label is known"):
                DifferentialLoss.from_data(x, nothing, dydx)

    @pytest.mark.parametrize("floor", [0.0, 1e-3])
    def test_derivatives_that_are_zero_or_noise_do_not_take_over(self, floor):
        x, y, z = draw(50, 3), draw(50, 1, seed=1), draw(50, 3, seed=2)
        z[:, 1], z[:, 2] = 0.0, 1e-9 * z[:, 2]
        factors = DifferentialLoss.from_data(x, y, z, floor=floor).derivative[0]

        assert factors.isfinite().all()
        assert factors[1] <= 1.1 * factors[0] / (floor or math.inf) + 1e-300
        if floor:
            assert factors[2] <= 1.5e3 * factors[0]


class TestMeans:
    def test_mean_over_equal_batches_is_the_whole(self):
        data = punctured(random_data(rows=12), share=0.4)
        loss, twin = DifferentialLoss.of(data), Twin(mlp(outputs=2))
        parts = [total(twin, loss, data.take(slice(i, i + 3))) for i in range(0, 12, 3)]

        assert_close(torch.stack(parts).mean(), total(twin, loss, data), tolerance=1e-13)

    def test_a_weight_of_two_is_the_row_given_twice(self):
        data, twin = random_data(), Twin(mlp(outputs=2))
        twice = data.take(torch.tensor([0, 0, 1, 2, 3, 4, 5]))
        weight = torch.tensor([2.0, 1, 1, 1, 1, 1]).double()
        loss = DifferentialLoss.of(data)
        weighted = DifferentialData(**{**vars(data), "sample_weight": weight / weight.mean()})

        assert_close(total(twin, loss, weighted), total(twin, loss, twice), tolerance=1e-13)

    @pytest.mark.parametrize(
        "shape", [(3,), (2, 1), (2, 3), (1, 1, 3), (6, 1, 1), (6, 2, 1), (6, 2, 3), ()]
    )
    def test_weights_of_derivatives_broadcast(self, shape):
        data, guess = random_data(), random_data(seed=9)
        loss, weight = DifferentialLoss.of(data), draw(*shape, seed=4).abs()
        term = [
            loss.terms(guess.y, data.y, guess.dydx, data.dydx, dydx_weight=w)["derivative"]
            for w in (weight, weight.expand(6, 2, 3).contiguous())
        ]

        assert_close(term[0], term[1], tolerance=1e-14)

    def test_weights_of_rows_and_inputs_for_one_output(self):
        data, guess, weight = (
            random_data(outputs=1),
            random_data(outputs=1, seed=9),
            draw(6, 3).abs(),
        )
        loss = DifferentialLoss.of(data)
        flat, full = (
            loss(guess.y, data.y, guess.dydx, data.dydx, dydx_weight=w)
            for w in (weight, weight[:, None])
        )

        assert torch.equal(flat, full)


def wrong_shapes():
    one, two = random_data(outputs=1), random_data(outputs=2)
    rows = {"y_hat": one.y, "y": one.y, "dydx_hat": one.dydx, "dydx": one.dydx}
    return {
        "[N] against [N, 1]": (one, {**rows, "y_hat": one.y[:, 0]}),
        "[N, 1] against [1, N]": (one, {**rows, "y": one.y.T}),
        "[N, 1] against another N": (one, {**rows, "y": one.y[:4]}),
        "[N, D] against [N, 1, D]": (one, {**rows, "dydx_hat": one.dydx[:, 0]}),
        "[N, D, 1]": (one, {**rows, "dydx": one.dydx.transpose(1, 2)}),
        "one output for two": (two, {"y_hat": two.y[:, :1], "y": two.y}),
        "[N, K] for [N, K, D]": (two, {"y_hat": two.y, "y": two.y, "dydx_hat": two.dydx,
                                       "dydx": two.dydx[:, :, 0]}),
        "three outputs where one was learnt": (one, {"y_hat": draw(6, 3), "y": draw(6, 3)}),
        "a weight of rows along inputs": (one, {**rows, "dydx_weight": draw(6, 1)}),
        "a weight with an axis too many": (one, {**rows, "dydx_weight": draw(1, 6, 1, 3)}),
        "too few weights of rows": (one, {**rows, "sample_weight": draw(5)}),
    }  # fmt: skip


class TestMistakes:
    @pytest.mark.parametrize("case", wrong_shapes())
    def test_shapes_that_would_broadcast_are_refused(self, case):
        data, arguments = wrong_shapes()[case]
        dydx = data.dydx if "dydx" in arguments else None

        with pytest.raises(ShapeError, match=r"DifferentialLoss: expected .* got"):
            DifferentialLoss.from_data(data.x, data.y, dydx)(**arguments)

    def test_labels_as_vectors_are_understood(self):
        data = random_data(outputs=1)
        flat = DifferentialLoss.from_data(data.x, data.y[:, 0], data.dydx[:, 0])
        full = DifferentialLoss.from_data(data.x, data.y, data.dydx)
        guess = random_data(outputs=1, seed=9)

        assert torch.equal(
            flat(guess.y, data.y[:, 0], guess.dydx, data.dydx[:, 0]),
            full(guess.y, data.y, guess.dydx, data.dydx),
        )

    def test_a_kind_of_label_that_was_not_there_before(self):
        data = random_data()
        loss = DifferentialLoss.from_data(data.x, data.y)

        with pytest.raises(InputError, match="derivative labels were given without such labels in"):
            loss(data.y, data.y, data.dydx, data.dydx)
        with pytest.raises(InputError, match="without a prediction"):
            DifferentialLoss.of(data)(data.y, data.y, None, data.dydx)

    @pytest.mark.parametrize("name", ["derivative_weight", "floor", "second_order_weight"])
    def test_negative_weights_are_refused(self, name):
        data = random_data()

        with pytest.raises(InputError, match="at least 0"):
            DifferentialLoss.from_data(data.x, data.y, data.dydx, **{name: -0.1})
