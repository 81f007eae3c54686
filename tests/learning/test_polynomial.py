"""The chunked solver against one dense least-squares problem, and data that break the usual one."""

import warnings
from itertools import product
from math import comb

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from pullback.errors import InputError
from pullback.learning import polynomial
from pullback.learning._monomials import Monomials, term_count
from pullback.learning.polynomial import DifferentialPolynomialRegression
from pullback.pathwise.markets.bachelier import reference_problem


def basis_by_hand(u, degree):
    """Monomials and their derivatives, one entry at a time, in an order of their own."""
    exponents = [e for e in product(range(degree + 1), repeat=u.shape[1]) if sum(e) <= degree]
    phi = np.array([[np.prod([r**e for r, e in zip(row, es, strict=True)]) for es in exponents]
                    for row in u])  # fmt: skip
    slopes = np.zeros((u.shape[1], *phi.shape))
    for j, n, p in np.ndindex(slopes.shape):
        factors = [
            (e * u[n, d] ** (e - 1) if e else 0.0) if d == j else u[n, d] ** e
            for d, e in enumerate(exponents[p])
        ]
        slopes[j, n, p] = np.prod(factors)
    return phi, slopes


def dense_fit(x, y, z, at, *, degree, weight=None, own=None, lam=1.0, ridge=0.0, floor=1e-3):
    """Every equation of one output as a row of one dense lstsq; values and slopes at `at`."""
    weight = np.ones(len(x)) if weight is None else weight
    own = np.ones_like(z) if own is None else np.broadcast_to(own, z.shape)
    mean = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    known = ~np.isnan(y)
    shift = np.average(y[known], weights=weight[known])
    spread = np.sqrt(np.average((y[known] - shift) ** 2, weights=weight[known]))
    target, slope = (y - shift) / spread, z * scale / spread
    squares = []
    for j in range(x.shape[1]):
        have = ~np.isnan(z[:, j])
        squares.append(np.average(slope[have, j] ** 2, weights=weight[have]))
    phi, dphi = basis_by_hand((x - mean) / scale, degree)
    rows, sides = [], []
    for n in range(len(x)):
        if known[n]:
            rows.append(np.sqrt(weight[n]) * phi[n])
            sides.append(np.sqrt(weight[n]) * target[n])
        for j in range(x.shape[1]):
            if not np.isnan(z[n, j]):
                factor = lam * own[n, j] * weight[n] / (squares[j] + floor * max(squares))
                rows.append(np.sqrt(factor) * dphi[j, n])
                sides.append(np.sqrt(factor) * slope[n, j])
    for p in range(phi.shape[1]):
        if p and ridge:  # term 0 of `product` is the constant
            rows.append(np.sqrt(ridge * weight.sum()) * np.eye(phi.shape[1])[p])
            sides.append(0.0)
    beta = np.linalg.lstsq(np.array(rows), np.array(sides), rcond=None)[0]
    phi, dphi = basis_by_hand((at - mean) / scale, degree)
    return shift + spread * phi @ beta, (spread / scale) * (dphi @ beta).T


def problem(rows=40, outputs=2, inputs=3, *, unknown=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs)) * np.array([0.1, 1.0, 50.0])[:inputs] + 7.0
    y = rng.normal(size=(rows, outputs))
    z = rng.normal(size=(rows, outputs, inputs))
    y[rng.random(y.shape) < unknown] = np.nan
    z[rng.random(z.shape) < unknown] = np.nan
    return x, y, z, x[:5] + 0.1


CASES = {
    "plain": {},
    "unknown labels": {"unknown": 0.4},
    "weights": {"weight": True, "unknown": 0.2},
    "weights of derivatives": {"own": [1.0, 0.0, 3.0]},
    "other balance": {"lam": 0.3},
    "ridge": {"ridge": 0.05, "weight": True},
    "no floor": {"floor": 0.0},
}


class TestAgainstDenseLeastSquares:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("block", [1, 2**22])
    def test_values_and_slopes(self, case, block, monkeypatch):
        monkeypatch.setattr(polynomial, "_BLOCK", block)  # 1: six rows of X a chunk
        options = dict(CASES[case])
        x, y, z, at = problem(unknown=options.pop("unknown", 0.0))
        weight = np.random.default_rng(1).uniform(0.2, 3.0, len(x)) if "weight" in options else None
        options.pop("weight", None)
        names = {"lam": "derivative_weight", "ridge": "ridge", "floor": "floor"}
        settings = {names[key]: value for key, value in options.items() if key in names}
        model = DifferentialPolynomialRegression(2, **settings).fit(
            x, y, z, sample_weight=weight, dydx_weight=options.get("own")
        )
        value, slope = model.predict(at, return_gradient=True)
        for k in range(y.shape[1]):
            expected = dense_fit(x, y[:, k], z[:, k], at, degree=2, weight=weight, **options)
            np.testing.assert_allclose(value[:, k], expected[0], rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(slope[:, k], expected[1], rtol=1e-9, atol=1e-10)

    @pytest.mark.parametrize(
        "spoil",
        [lambda z: 1.001 * z, lambda z: np.roll(z, 1, axis=0), lambda z: z[:, ::-1]],
        ids=["scaled", "shifted by a row", "swapped"],
    )
    def test_the_comparison_can_fail(self, spoil):
        x, y, z, at = problem()
        value = DifferentialPolynomialRegression(2).fit(x, y[:, 0], spoil(z[:, 0])).predict(at)
        expected, _ = dense_fit(x, y[:, 0], z[:, 0], at, degree=2)
        assert np.abs(value / expected - 1.0).max() > 1e-6

    def test_without_derivatives_it_is_plain_least_squares(self):
        x, y, z, at = problem()
        plain = DifferentialPolynomialRegression(2).fit(x, y).predict(at)
        ignored = DifferentialPolynomialRegression(2, derivative_weight=0.0).fit(x, y, z)
        phi = np.array([basis_by_hand(rows, 2)[0] for rows in (x - 7.0, at - 7.0)], dtype=object)
        expected = phi[1] @ np.linalg.lstsq(phi[0].astype(float), y, rcond=None)[0]
        np.testing.assert_allclose(plain, expected.astype(float), rtol=1e-8)
        np.testing.assert_array_equal(plain, ignored.predict(at))


class TestMonomials:
    @pytest.mark.parametrize(("inputs", "degree"), [(1, 1), (1, 6), (4, 3), (3, 0)])
    def test_count_and_values(self, inputs, degree):
        basis = Monomials(inputs, degree)
        u = np.random.default_rng(0).normal(size=(4, inputs))
        assert len(basis.exponents) == term_count(inputs, degree) == comb(inputs + degree, degree)
        assert len(np.unique(basis.exponents, axis=0)) == len(basis.exponents)
        expected = np.prod(u[:, None, :] ** basis.exponents, axis=2)
        np.testing.assert_allclose(basis.values(u), expected, rtol=1e-14)

    @pytest.mark.parametrize("value", [0.0, 1e-300, -1e-9, 1e-9])
    def test_derivative_at_and_near_zero(self, value):
        basis = Monomials(2, 3)
        phi = basis.values(np.array([[value, 2.0]]))
        expected = [
            e * value ** max(e - 1, 0) * 2.0**other if e else 0.0 for e, other in basis.exponents
        ]
        np.testing.assert_array_equal(basis.derivative(phi, 0)[0], expected)


class TestPredictions:
    def test_gradient_is_that_of_the_prediction(self):
        x, y, z, at = problem()
        model = DifferentialPolynomialRegression(4).fit(x, y, z)
        slope = model.predict_gradient(at) * x.std(0)  # per standard deviation of the input
        for j in range(3):
            step = 1e-4 * x.std(0) * np.eye(3)[j]
            difference = (model.predict(at + step) - model.predict(at - step)) / 2e-4
            # Central differences: a third derivative times (1e-4)² / 6.
            np.testing.assert_allclose(slope[..., j], difference, rtol=1e-6, atol=1e-6)

    def test_a_polynomial_is_recovered_from_few_rows(self):
        rng = np.random.default_rng(0)
        x = np.vstack([np.zeros((1, 3)), rng.normal(size=(15, 3))])
        y = x[:, 0] ** 3 - 2.0 * x[:, 0] * x[:, 1] * x[:, 2] + 4.0
        z = np.stack([3 * x[:, 0] ** 2 - 2 * x[:, 1] * x[:, 2], -2 * x[:, 0] * x[:, 2],
                      -2 * x[:, 0] * x[:, 1]], 1)  # fmt: skip
        model = DifferentialPolynomialRegression(3).fit(x, y, z)  # 20 terms, 16 rows
        np.testing.assert_allclose(model.predict(x), y, atol=1e-10)
        np.testing.assert_allclose(model.predict_gradient(x), z, atol=1e-10)

    def test_kinds_and_shapes(self):
        x, y, z, _ = problem()
        one = DifferentialPolynomialRegression(2).fit(x, y[:, 0], z[:, 0])
        assert [a.shape for a in one.predict(x, return_gradient=True)] == [(40,), (40, 3)]
        assert one.coef_.shape == (10,)
        two = DifferentialPolynomialRegression(2).fit(x, y, z)
        assert [a.shape for a in two.predict(x, return_gradient=True)] == [(40, 2), (40, 2, 3)]
        assert two.coef_.shape == (2, 10)
        tensors = two.predict(torch.from_numpy(x).float(), return_gradient=True)
        assert [(type(t), t.dtype) for t in tensors] == [(torch.Tensor, torch.float32)] * 2
        assert two.predict(x.astype(np.float32)).dtype == np.float32

    def test_units_do_not_matter(self):
        x, y, z, at = problem()
        factor, shift = np.array([1e6, 1e-3, 1.0]), np.array([3.0, 0.0, -9.0])
        plain = DifferentialPolynomialRegression(3).fit(x, y, z)
        other = DifferentialPolynomialRegression(3).fit(
            x * factor + shift, 100.0 * y + 5000.0, 100.0 * z / factor
        )
        value, slope = other.predict(at * factor + shift, return_gradient=True)
        np.testing.assert_allclose((value - 5000.0) / 100.0, plain.predict(at), rtol=1e-9)
        np.testing.assert_allclose(slope * factor / 100.0, plain.predict_gradient(at), rtol=1e-9)

    def test_weight_two_is_a_row_given_twice(self):
        x, y, z, at = problem(unknown=0.2)
        times = np.random.default_rng(1).integers(0, 4, len(x))
        model = DifferentialPolynomialRegression(2, ridge=0.01)
        repeated = model.fit(x.repeat(times, 0), y.repeat(times, 0), z.repeat(times, 0)).predict(at)
        weighted = model.fit(x, y, z, sample_weight=times).predict(at)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-9)

    def test_score_leaves_unknown_values_out(self):
        x, y, z, _ = problem()
        model = DifferentialPolynomialRegression(2).fit(x, y, z)
        holes = y.copy()
        holes[3, 0] = np.nan
        keep = np.arange(40) != 3
        first = DifferentialPolynomialRegression(2).fit(x, y[:, 0], z[:, 0])
        second = DifferentialPolynomialRegression(2).fit(x, y[:, 1], z[:, 1])
        expected = 0.5 * (first.score(x[keep], y[keep, 0]) + second.score(x, y[:, 1]))
        assert model.score(x, holes) == pytest.approx(expected, rel=1e-12)


class TestSingularData:
    """The reference recipe gives NaN or errors of 100 times the labels on the first three."""

    def accuracy(self, extra_x, extra_z, extra_at):
        train, test = reference_problem(2, 400)
        x, z = np.column_stack([train.x, extra_x]), np.column_stack([train.dydx, extra_z])
        model = DifferentialPolynomialRegression(3).fit(x, train.y, z)
        error = model.predict(np.column_stack([test.x, extra_at])) - test.y
        return np.sqrt(np.mean(error**2))

    def test_extra_inputs_that_say_nothing(self):
        train, test = reference_problem(2, 400)
        clean = DifferentialPolynomialRegression(3).fit(train.x, train.y, train.dydx)
        base = np.sqrt(np.mean((clean.predict(test.x) - test.y) ** 2))
        rng = np.random.default_rng(0)
        noise, at = rng.normal(size=400), rng.normal(size=4096)
        assert self.accuracy(noise, np.zeros(400), at) < 1.2 * base
        assert self.accuracy(noise, 1e-6 * rng.normal(size=400), at) < 1.2 * base
        assert self.accuracy(np.ones(400), np.zeros(400), np.full(4096, 1.001)) < 1.2 * base
        assert self.accuracy(np.ones(400), 1e-6 * noise, np.full(4096, 1.001)) < 1.2 * base
        assert self.accuracy(train.x[:, 0], np.zeros(400), test.x[:, 0]) < 2.0 * base

    def test_slope_along_a_constant_input_is_learnt(self):
        x = np.column_stack([np.linspace(0, 1, 9), np.full(9, 0.2)])
        z = np.column_stack([np.full(9, 3.0), 5.0 * x[:, 0]])
        model = DifferentialPolynomialRegression(2).fit(x, 3.0 * x[:, 0], z)
        np.testing.assert_allclose(model.predict([[0.5, 0.3]]), [1.5 + 0.25], rtol=1e-9)

    def test_constant_values_and_no_values(self):
        x = np.linspace(0, 1, 9)[:, None]
        flat = DifferentialPolynomialRegression(2).fit(x, np.full(9, 4.0))
        np.testing.assert_allclose(flat.predict(x), 4.0, rtol=1e-12)
        slopes = DifferentialPolynomialRegression(2).fit(x, None, 2.0 * x)
        np.testing.assert_allclose(np.diff(slopes.predict(x)), np.diff(x[:, 0] ** 2), atol=1e-12)

    def test_fewer_labels_than_terms(self):
        x = np.random.default_rng(0).normal(size=(4, 3))
        model = DifferentialPolynomialRegression(4).fit(x, x[:, 0], np.tile([1.0, 0, 0], (4, 1)))
        np.testing.assert_allclose(model.predict(x), x[:, 0], atol=1e-9)
        assert model.rank_[0] < len(model.exponents_)


class TestRefusals:
    def test_too_many_terms(self):
        words = r"degree=5 in 20 inputs has 53130 terms.*degree=3 \(1771 terms\).*DifferentialPCA"
        with pytest.raises(InputError, match=words):
            DifferentialPolynomialRegression(5).fit(np.ones((2, 20)), [0.0, 1.0])
        with pytest.raises(InputError, match="Use fewer inputs"):
            DifferentialPolynomialRegression(1, max_terms=5).fit(np.ones((2, 20)), [0.0, 1.0])

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"degree": 0}, "integer degree of at least 1, got 0"),
            ({"degree": 2.0}, "integer degree of at least 1, got 2.0"),
            ({"ridge": -1.0}, "finite ridge of at least 0, got -1.0"),
            ({"derivative_weight": np.inf}, "finite derivative_weight"),
            ({"floor": np.nan}, "finite floor"),
        ],
    )
    def test_parameters(self, settings, words):
        with pytest.raises(InputError, match=words):
            DifferentialPolynomialRegression(**settings).fit([[0.0], [1.0]], [0.0, 1.0])


class TestScikitLearn:
    def test_check_estimator(self):
        with warnings.catch_warnings():
            # The array API check needs an environment variable that is read at import.
            warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API")
            # Degree 2, since one check has 30 inputs: 5,456 terms of degree 3 are refused.
            model = DifferentialPolynomialRegression(degree=2)
            results = check_estimator(model, on_fail=None, on_skip=None)
        failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
        assert failed == []
        assert sum(r["status"] == "passed" for r in results) > 50

    def test_search_slices_derivatives_with_the_rows(self):
        train, _ = reference_problem(2, 200)
        with sklearn.config_context(enable_metadata_routing=True):
            model = DifferentialPolynomialRegression().set_fit_request(dydx=True)
            search = GridSearchCV(model, {"degree": [1, 3], "ridge": [0.0, 1e-3]}, cv=3)
            search.fit(train.x, train.y, dydx=train.dydx)
        assert search.best_params_["degree"] == 3


class TestGain:
    def test_derivatives_make_better_use_of_the_same_paths(self):
        """The reference notebook's setting: a basket of 3 assets, 1,000 rows, degree 5.

        Over these five markets the errors of the values vary from 0.006 to 0.076 without and from
        0.0035 to 0.0078 with derivatives: single draws say little, so the medians are compared.
        """
        values, derivatives = [], []
        for seed in (1234, 1, 2, 3, 4):
            train, test = reference_problem(3, 1000, seed=seed)
            for errors, dydx in ((values, None), (derivatives, train.dydx)):
                model = DifferentialPolynomialRegression(5).fit(train.x, train.y, dydx)
                value, slope = model.predict(test.x, return_gradient=True)
                errors.append((rmse(value - test.y), rmse(slope - test.dydx)))
        assert np.all(np.array(derivatives) < values)
        without, with_them = np.median(values, axis=0), np.median(derivatives, axis=0)
        assert without[0] > 0.03  # the premise: values alone do miss, by 3 % of the spot of 1
        assert np.all(with_them < without / 6.0)


def rmse(error):
    return float(np.sqrt(np.mean(error**2)))
