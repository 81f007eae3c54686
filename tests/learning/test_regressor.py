"""DifferentialRegressor: what goes in, what comes out, and what each kind of label is good for."""

import contextlib
import copy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from tests.learning.problems import Interrupt, draw, field, field_hessian, two_fields
from torch import nn

from pullback import Columns, DifferentialRegressor
from pullback.errors import (
    ActivationError,
    CoupledRowsError,
    InputError,
    LabelError,
    LabelWarning,
    PullbackError,
    ShapeError,
)

X, Y, DYDX = field()
FRESH, FRESH_Y, FRESH_DYDX = field(200, seed=9)


def model(**more):
    settings = {"activation": "tanh", "optimizer": "lbfgs", "epochs": 200, "random_state": 0}
    return DifferentialRegressor(**{"hidden": (12,), **settings, **more})


@pytest.fixture(scope="module")
def fitted():
    """One output, exact labels."""
    return model().fit(X, Y, DYDX)


@pytest.fixture(scope="module")
def fitted_two():
    return model(hidden=(20,), epochs=400).fit(*two_fields())


def error(prediction, truth):
    """Root mean squared error as a share of the truth's own size."""
    return float(np.sqrt(np.square(prediction - truth).mean() / np.square(truth).mean()))


class TestAccuracy:
    def test_values_gradients_and_hessians_of_exact_data(self, fitted):
        y, dydx = fitted.predict(FRESH, return_gradient=True)

        assert error(y, FRESH_Y) < 0.01
        assert error(dydx, FRESH_DYDX) < 0.03
        assert error(fitted.predict_hessian(FRESH), field_hessian(FRESH)) < 0.25
        assert fitted.score(FRESH, FRESH_Y) > 0.999

    def test_two_outputs_of_very_different_size(self, fitted_two):
        x, y, dydx = two_fields(200, seed=9)
        got_y, got_dydx = fitted_two.predict(x, return_gradient=True)

        for k in range(2):
            assert error(got_y[:, k], y[:, k]) < 0.02
            assert error(got_dydx[:, k], dydx[:, k]) < 0.05


class TestShapes:
    def test_one_output(self, fitted):
        y, dydx = fitted.predict(FRESH, return_gradient=True)

        assert (y.shape, dydx.shape) == ((200,), (200, 2))
        assert fitted.predict_hessian(FRESH).shape == (200, 2, 2)
        assert np.array_equal(fitted.predict_gradient(FRESH), dydx)
        assert np.array_equal(fitted.predict(FRESH), y)

    def test_several_outputs(self, fitted_two):
        y, dydx = fitted_two.predict(FRESH, return_gradient=True)

        assert (y.shape, dydx.shape) == ((200, 2), (200, 2, 2))
        assert fitted_two.predict_hessian(FRESH).shape == (200, 2, 2, 2)

    @pytest.mark.parametrize("dydx", [DYDX, DYDX[:, None]])
    def test_one_output_given_as_a_column(self, dydx):
        y, slopes = model(epochs=5).fit(X, Y[:, None], dydx).predict(X, return_gradient=True)

        assert (y.shape, slopes.shape) == ((60, 1), (60, 1, 2))

    def test_one_input_two_outputs(self):
        """Both derivatives of a curve in the plane."""
        t = np.linspace(-2, 2, 30)
        curve = np.stack([np.sin(t), np.cos(t)], 1)
        slopes = np.stack([np.cos(t), -np.sin(t)], 1)[:, :, None]
        y, dydx = model().fit(t[:, None], curve, slopes).predict(t[:, None], return_gradient=True)

        assert dydx.shape == (30, 2, 1)
        assert error(y, curve) < 0.01
        assert error(dydx, slopes) < 0.02

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ((X, Y, DYDX.T), r"looks like \[D, N\]; pass dydx.T"),
            ((X, Y, DYDX[:50]), "X has 60 rows and dydx 50"),
            ((X.T, Y, DYDX), "y of shape"),
            ((X, np.stack([Y, Y], 1), DYDX), "derivatives of one of them"),
            ((X[:, 0], Y, DYDX), r"expected X of shape \[N, D\]"),
        ],
    )
    def test_mistaken_shapes_name_the_axes(self, data, words):
        with pytest.raises(ShapeError, match=words):
            model().fit(*data)

    @pytest.mark.parametrize("name", ["directions", "dydv", "hvp"])
    def test_so_do_those_of_directional_labels(self, name):
        more = {"directions": X, "dydv": Y, "hvp": DYDX}
        more[name] = more[name].T if name != "dydv" else Y[:50]

        with pytest.raises(ShapeError, match=f"fit: expected {name} of shape"):
            model().fit(X, Y, DYDX, **more)


def frame(kind):
    return kind({"spot": X[:, 0], "vol": X[:, 1]})


KINDS = {
    "numpy": lambda: (X, Y, DYDX),
    "lists": lambda: (X.tolist(), Y.tolist(), DYDX.tolist()),
    "torch": lambda: (torch.tensor(X), torch.tensor(Y), torch.tensor(DYDX)),
    "torch with a graph": lambda: (torch.tensor(X).requires_grad_(), torch.tensor(Y), DYDX),
    "pandas": lambda: (frame(pd.DataFrame), pd.Series(Y, name="price"), pd.DataFrame(DYDX)),
    "polars": lambda: (frame(pl.DataFrame), pl.Series("price", Y), DYDX),
    "pyarrow": lambda: (frame(pa.table), Y, DYDX),
    "by name": lambda: (frame(pd.DataFrame), Y, {"spot": DYDX[:, 0], "vol": DYDX[:, 1]}),
}


class TestKinds:
    @pytest.mark.parametrize("kind", KINDS)
    def test_all_kinds_of_data_give_the_same_model(self, kind, fitted):
        x, y, dydx = KINDS[kind]()
        got_y, got_dydx = model().fit(x, y, dydx).predict(x, return_gradient=True)
        expected = fitted.predict(X, return_gradient=True)

        assert isinstance(got_y, torch.Tensor if "torch" in kind else np.ndarray)
        assert np.array_equal(np.asarray(got_y), expected[0])
        assert np.array_equal(np.asarray(got_dydx), expected[1])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
    def test_the_dtype_comes_back(self, fitted, dtype, kind):
        x = kind(X.astype(dtype))
        results = [*fitted.predict(x, return_gradient=True), fitted.predict_hessian(x)]

        assert {r.dtype for r in results} == {x.dtype}

    def test_integers_come_back_as_float64(self, fitted):
        x = np.array([[0, 1], [1, 0]])

        assert fitted.predict(x).dtype == np.float64
        assert fitted.predict(torch.as_tensor(x)).dtype == torch.float64
        assert np.array_equal(fitted.predict(x), fitted.predict(x.astype(float)))

    def test_names_travel(self):
        by_name = model(epochs=5).fit(frame(pd.DataFrame), pd.Series(Y, name="price"), DYDX)

        assert by_name.columns_ == Columns(("spot", "vol"), ("price",))
        assert by_name.columns_.derivatives == ("dprice/dspot", "dprice/dvol")
        assert by_name.feature_names_in_.tolist() == ["spot", "vol"]

    def test_names_and_units_may_be_given(self):
        columns = Columns(("a", "b"), ("c",), {"c": "EUR"})

        assert model(epochs=5).fit(X, Y, DYDX, columns=columns).columns_ == columns


class TestFrames:
    @pytest.mark.parametrize("x", [X.tolist(), X, torch.tensor(X), frame(pl.DataFrame)])
    @pytest.mark.filterwarnings("ignore:X has feature names")
    def test_pandas(self, fitted, x):
        framed = copy.copy(fitted).set_output(transform="pandas")
        y, dydx = framed.predict(x, return_gradient=True)

        assert list(y.columns) == ["y"]
        assert list(dydx.columns) == ["dy/dx0", "dy/dx1"]
        assert np.array_equal(dydx.to_numpy(), fitted.predict_gradient(X))

    def test_pandas_keeps_the_index(self):
        x = frame(pd.DataFrame).set_index(np.arange(100, 160))
        framed = model(epochs=5).fit(x, Y, DYDX).set_output(transform="pandas")

        assert framed.predict(x).index.equals(x.index)

    def test_polars(self, fitted_two):
        framed = copy.copy(fitted_two).set_output(transform="polars")
        y, dydx = framed.predict(X, return_gradient=True)

        assert y.columns == ["y0", "y1"]
        assert dydx.columns == ["dy0/dx0", "dy0/dx1", "dy1/dx0", "dy1/dx1"]
        assert np.array_equal(dydx.to_numpy().reshape(60, 2, 2), fitted_two.predict_gradient(X))

    def test_back_to_arrays(self, fitted):
        framed = copy.copy(fitted).set_output(transform="pandas").set_output(transform=None)
        assert isinstance(framed.predict(X), pd.DataFrame)
        assert isinstance(framed.set_output(transform="default").predict(X), np.ndarray)

    def test_another_name_is_refused(self, fitted):
        with pytest.raises(InputError, match="'default', 'pandas' or 'polars', got 'arrow'"):
            copy.copy(fitted).set_output(transform="arrow")


class TestModes:
    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
    @pytest.mark.parametrize("kind", ["named", "callable", "module"])
    def test_right_in_every_grad_mode(self, mode, kind):
        network = {
            "named": {},
            "callable": {"activation": torch.tanh},
            "module": {"module": nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))},
        }[kind]
        net = model(epochs=20, **network).fit(X, Y, DYDX)
        expected = [*net.predict(X, return_gradient=True), net.predict_hessian(X)]
        with mode():
            got = [*net.predict(X, return_gradient=True), net.predict_hessian(torch.tensor(X))]

        assert np.abs(expected[2]).max() > 0.01
        for one, other in zip(got, expected, strict=True):
            assert np.array_equal(np.asarray(one), other)

    def test_chunks_do_not_show(self, fitted, monkeypatch):
        whole = [*fitted.predict(X, return_gradient=True), fitted.predict_hessian(X)]
        monkeypatch.setattr("pullback.learning.surrogate._MOST_ROWS", 7)
        parts = [*fitted.predict(X, return_gradient=True), fitted.predict_hessian(X)]

        for one, other in zip(parts, whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


class TestUnknownLabels:
    def test_each_row_is_used_for_what_it_holds(self):
        """Values on a third of the rows, derivatives on another: both together beat either."""
        y, dydx = Y.copy(), DYDX.copy()
        y[20:40], dydx[:20], dydx[40:] = np.nan, np.nan, np.nan
        both = model().fit(X, y, dydx)
        values = model().fit(X[~np.isnan(y)], Y[~np.isnan(y)])
        errors = [error(m.predict(FRESH), FRESH_Y) for m in (both, values)]
        slopes = [error(m.predict_gradient(FRESH), FRESH_DYDX) for m in (both, values)]

        assert errors[0] < 0.05
        assert slopes[0] < 0.5 * slopes[1]

    def test_one_derivative_missing_in_a_third_of_the_rows(self):
        """Where another package returns nothing but NaN."""
        dydx = DYDX.copy()
        dydx[::3, 1] = np.nan
        sparse = model().fit(X, Y, dydx)

        assert error(sparse.predict(FRESH), FRESH_Y) < 0.02
        assert error(sparse.predict_gradient(FRESH), FRESH_DYDX) < 0.05

    def test_filling_in_zeros_of_weight_zero_does_as_well(self):
        dydx, weight = DYDX.copy(), np.ones((60, 1, 2))
        dydx[::3, 1], weight[::3, 0, 1] = 0.0, 0.0
        filled = model(check_labels=False).fit(X, Y, dydx, dydx_weight=weight)

        assert error(filled.predict_gradient(FRESH), FRESH_DYDX) < 0.05

    def test_derivatives_known_for_two_of_four_inputs(self):
        x = np.random.default_rng(0).uniform(-1, 1, (120, 4))
        y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2
        known = {"x0": np.cos(x[:, 0]), "x1": x[:, 2]}
        slopes = model(hidden=(16,), epochs=300).fit(x, y, known).predict_gradient(x)

        assert np.isfinite(slopes).all()
        assert error(slopes[:, 2], x[:, 1]) < 0.15
        assert error(slopes[:, 3], x[:, 3]) < 0.15

    def test_derivatives_alone_give_the_function_up_to_a_constant(self):
        shape = model().fit(X, None, DYDX)
        gap = shape.predict(FRESH) - FRESH_Y

        assert gap.std() < 0.02 * FRESH_Y.std()
        assert error(shape.predict_gradient(FRESH), FRESH_DYDX) < 0.05

    def test_no_label_at_all_is_refused(self):
        with pytest.raises(InputError, match="every label is NaN"):
            model().fit(X, np.full(60, np.nan), np.full((60, 2), np.nan))


class TestOtherLabels:
    v = draw(60, 2, seed=4).numpy()

    def test_directional_derivatives_improve_the_fit(self):
        along = np.einsum("nd,nd->n", DYDX, self.v)[:30]
        with_ = model().fit(X[:30], Y[:30], directions=self.v[:30], dydv=along)
        without = model().fit(X[:30], Y[:30])
        errors = [error(m.predict_gradient(FRESH), FRESH_DYDX) for m in (with_, without)]

        assert errors[0] < 0.5 * errors[1]
        assert "directional" in with_.history_.train

    def test_second_derivatives_improve_second_derivatives(self):
        hvp = np.einsum("nde,ne->nd", field_hessian(X), self.v)
        with_ = model().fit(X, Y, DYDX, directions=self.v, hvp=hvp)
        without = model().fit(X, Y, DYDX)
        errors = [error(m.predict_hessian(FRESH), field_hessian(FRESH)) for m in (with_, without)]

        assert errors[0] < 0.5 * errors[1]
        assert "second_order" in with_.history_.train

    def test_a_row_without_a_direction(self):
        v, along = self.v.copy(), np.einsum("nd,nd->n", DYDX, self.v)
        v[::2], along[::2] = np.nan, np.nan
        y = model(epochs=50).fit(X, Y, directions=v, dydv=along).predict(X)

        assert np.isfinite(y).all()
        with pytest.raises(InputError, match="directions must be known in every row with a label"):
            model().fit(X, Y, directions=v, dydv=Y)
        with pytest.raises(InputError, match="directions must not hold infinity"):
            model().fit(X, Y, directions=v * np.inf, dydv=along)

    def test_labels_without_directions(self):
        with pytest.raises(InputError, match="need the directions"):
            model().fit(X, Y, dydv=Y)

    def test_weights_of_derivatives_say_which_to_believe(self):
        """Labels of input 1 are noise; a weight of zero on them gives the good ones their due."""
        noisy = DYDX.copy()
        noisy[:, 1] = 3 * np.random.default_rng(0).normal(size=60)
        settings = {"check_labels": False}
        plain = model(**settings).fit(X, Y, noisy)
        weighted = model(**settings).fit(X, Y, noisy, dydx_weight=[1.0, 0.0])
        errors = [error(m.predict(FRESH), FRESH_Y) for m in (weighted, plain)]

        assert errors[0] < 0.5 * errors[1]

    def test_noisy_derivatives_do_not_ruin_the_values(self):
        """Zero-mean noise of two deviations; L-BFGS, which fits it, ends at R² = -74."""
        noise = 2 * DYDX.std(0) * np.random.default_rng(0).normal(size=DYDX.shape)
        fitted = model(epochs=400, optimizer="auto").fit(X, Y, DYDX + noise)

        assert "the labels are noisy" in fitted.history_.events[0]
        assert fitted.score(FRESH, FRESH_Y) > 0.9


def rosenbrock(rows, seed):
    x = np.random.default_rng(seed).uniform(-1.5, 1.5, (rows, 2))
    a, b = x[:, 0], x[:, 1]
    y = (1 - a) ** 2 + 100 * (b - a**2) ** 2
    return x, y, np.stack([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)], 1)


def test_gradients_gain_on_rosenbrock():
    data, fresh = rosenbrock(30, 0), rosenbrock(500, 1)
    with_ = model(hidden=(20,), epochs=300).fit(*data)
    without = model(hidden=(20,), epochs=300).fit(*data[:2])
    errors = [error(m.predict(fresh[0]), fresh[1]) for m in (with_, without)]

    assert errors[0] < 0.3 * errors[1]


def test_a_huge_offset_in_float32():
    """x varies by 1e-2 around 1e6: gone in float32, unless it is centred before."""
    offset = 1e6 + 1e-2 * X
    net = model(dtype="float32").fit(offset, Y, DYDX * 1e2)

    assert error(net.predict(1e6 + 1e-2 * FRESH), FRESH_Y) < 0.02


def test_a_constant_input_is_ignored_with_a_zero_derivative():
    x = np.column_stack([X, np.full(60, 5.0)])
    moved = np.column_stack([FRESH, np.full(200, 5.005)])
    errors, clean = [], []
    # Another number of inputs means other initial weights: errors of single seeds differ by two.
    for seed in range(5):
        net = model(random_state=seed).fit(x, Y, np.column_stack([DYDX, np.zeros(60)]))
        y, dydx = net.predict(moved, return_gradient=True)
        errors.append(error(y, FRESH_Y))
        clean.append(error(model(random_state=seed).fit(X, Y, DYDX).predict(FRESH), FRESH_Y))

        assert not dydx[:, 2].any()

    assert np.median(errors) < 1.5 * np.median(clean)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_an_irrelevant_input_does_no_harm(noise):
    rng = np.random.default_rng(0)
    x = np.column_stack([X, rng.normal(size=60)])
    net = model(check_labels=False, epochs=600).fit(
        x, Y, np.column_stack([DYDX, noise * rng.normal(size=60)])
    )

    assert error(net.predict(np.column_stack([FRESH, rng.normal(size=200)])), FRESH_Y) < 0.05


class TestLabelCheck:
    @pytest.mark.parametrize(
        "wrong", [-DYDX, DYDX[:, ::-1], 627.5 * DYDX], ids=["sign", "swapped", "factor"]
    )
    def test_contradictions_are_refused(self, wrong):
        with pytest.raises(LabelError, match=r"dydx contradicts y: .*pass check_labels=False"):
            model().fit(X, Y, wrong)
        with pytest.warns(LabelWarning, match="dydx contradicts y"):
            assert not model(check_labels="warn", epochs=5).fit(X, Y, wrong).label_report_.ok
        assert model(check_labels=False, epochs=5).fit(X, Y, wrong).label_report_ is None

    def test_right_labels_pass(self, fitted):
        assert fitted.label_report_.ok

    def test_another_answer_is_refused(self):
        with pytest.raises(InputError, match="expected 'raise', 'warn' or False, got True"):
            model(check_labels=True).fit(X, Y, DYDX)


class TestDomain:
    def test_rows_outside_are_flagged(self, fitted):
        assert not fitted.domain_.outside(X).any()
        assert fitted.domain_.outside(np.array([[0.0, 0.0], [9.0, 0.0]])).tolist() == [0, 1]


class TestModules:
    def test_a_network_of_ones_own(self):
        torch.manual_seed(0)
        own = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1))
        before = copy.deepcopy(own.state_dict())
        net = model(module=own).fit(X, Y, DYDX)

        assert error(net.predict_gradient(FRESH), FRESH_DYDX) < 0.05
        assert all(torch.equal(before[k], v) for k, v in own.state_dict().items())
        assert {p.dtype for p in own.parameters()} == {torch.float32}
        assert all(p.grad is None for p in own.parameters())

    def test_frozen_weights_of_it_stay(self):
        own = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
        own[0].weight.requires_grad_(False)
        net = model(module=own, epochs=20, optimizer="adam").fit(X, Y, DYDX)

        assert torch.equal(net.surrogate_.twin.module[0].weight, own[0].weight)
        assert not torch.equal(net.surrogate_.twin.module[2].weight, own[2].weight)

    def test_rows_that_meet_are_refused(self):
        own = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))

        with pytest.raises(CoupledRowsError, match="BatchNorm"):
            model(module=own).fit(X, Y, DYDX)

    def test_another_number_of_outputs_is_named(self):
        with pytest.raises(ShapeError, match=r"\(60, 3\) and \(60, 1\)"):
            model(module=nn.Linear(2, 3)).fit(X, Y)

    def test_an_activation_with_weights_of_its_own(self):
        with pytest.warns(UserWarning, match="piecewise linear"):
            net = model(activation=(own := nn.PReLU()), epochs=20).fit(X, Y, DYDX)

        assert float(own.weight.detach()) == 0.25
        assert float(net.surrogate_.twin.module.activation_module.weight.detach()) != 0.25


class TestRefused:
    @pytest.mark.parametrize("dtype", [torch.float16, "bfloat16", torch.int32, "half"])
    def test_half_precision(self, dtype):
        with pytest.raises(InputError, match=r"expected float32 or float64.*half precision loses"):
            model(dtype=dtype).fit(X, Y, DYDX)

    def test_a_wrong_derivative_of_an_activation(self):
        with pytest.raises(ActivationError, match="expected the derivative of tanh"):
            model(activation=torch.tanh, activation_derivative=lambda z: z).fit(X, Y, DYDX)

    @pytest.mark.parametrize("data", [(X,), 3, (X, Y, DYDX, X)])
    def test_other_validation_data(self, data):
        with pytest.raises(InputError, match=r"expected \(X, y\) or \(X, y, dydx\)"):
            model().fit(X, Y, DYDX, validation_data=data)

    def test_validation_data_of_another_width(self):
        with pytest.raises(ShapeError, match="expected 2 inputs and 1 outputs as in training, got"):
            model().fit(X, Y, DYDX, validation_data=(X[:, :1], Y))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_what_is_not_finite_in_x(self, bad, fitted):
        x = X.copy()
        x[3, 1] = bad

        for call in (lambda: model().fit(x, Y, DYDX), lambda: fitted.predict(x)):
            with pytest.raises(InputError, match="row 3, column 1"):
                call()

    def test_infinite_labels(self):
        with pytest.raises(InputError, match="no infinity"):
            model().fit(X, np.where(np.arange(60) == 3, np.inf, Y), DYDX)


class TestNothingOfTheCallersChanges:
    def test_an_exception_inside_the_activation(self):
        calls = []

        def fragile(z):
            calls.append(1)
            if len(calls) > 200:
                raise ZeroDivisionError("inside")
            return torch.tanh(z)

        torch.set_num_threads(2)
        stream, numpy_stream = torch.get_rng_state(), np.random.get_state()[1].copy()
        x, y, dydx = X.copy(), Y.copy(), DYDX.copy()
        with pytest.raises(ZeroDivisionError, match="inside"):
            model(activation=fragile, optimizer="adam").fit(x, y, dydx)

        assert torch.get_num_threads() == 2
        assert torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), stream)
        assert np.array_equal(np.random.get_state()[1], numpy_stream)
        for now, before in zip((x, y, dydx), (X, Y, DYDX), strict=True):
            assert np.array_equal(now, before)

    def test_read_only_data(self):
        data = [part.copy() for part in (X, Y, DYDX)]
        for part in data:
            part.setflags(write=False)

        assert np.isfinite(model(epochs=5).fit(*data).predict(data[0])).all()

    def test_hyper_parameters(self):
        hidden = [6, 6]
        net = model(hidden=hidden, epochs=np.int64(5), activation=(own := nn.Tanh()))
        before = dict(net.get_params())
        net.fit(X, Y, DYDX)

        assert net.get_params() == before
        assert net.hidden is hidden
        assert net.activation is own

    def test_a_failed_fit_raises_our_own_error(self, monkeypatch):
        Interrupt(3, FloatingPointError("kernel")).install(monkeypatch)

        with pytest.raises(FloatingPointError):
            model(activation="gelu", optimizer="adam").fit(X, Y, DYDX)
        assert issubclass(InputError, PullbackError)
