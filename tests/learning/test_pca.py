"""Directions that derivatives single out: against an eigenproblem of another form, and baskets."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pullback.errors import InputError, ShapeError
from pullback.learning.pca import DifferentialPCA
from pullback.learning.polynomial import DifferentialPolynomialRegression
from pullback.pathwise.markets.bachelier import BachelierBasket, reference_problem


def correlated(rows=200, inputs=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs)) @ rng.normal(size=(inputs, inputs)) + 5.0
    return x * np.geomspace(1e-3, 1e3, inputs), rng


def ridge_function(x):
    """y = sin(b·s) + (c·s)² / 2 of standardised inputs s, with its gradient."""
    scale = x.std(0)
    s = (x - x.mean(0)) / scale
    b, c = np.linspace(1.0, -1.0, x.shape[1]), np.linspace(0.2, 1.0, x.shape[1]) ** 2
    y = np.sin(s @ b) + 0.5 * (s @ c) ** 2
    z = (np.cos(s @ b)[:, None] * b + (s @ c)[:, None] * c) / scale
    return y, z


def baskets(count, rows=4096, seed=0):
    """States of 20 stocks and pathwise gradients of the sum of calls on `count` baskets."""
    rng = np.random.RandomState(seed)
    market = BachelierBasket.random(20, rng)
    weights = rng.uniform(-1.0, 1.0, size=(count, 20))
    if count == 1:
        sample = market.sample(rows, rng)
        return market.weights[None], sample.x, sample.dydx
    factor = np.linalg.cholesky(market.covariance)
    x = 1.0 + 1.5 * rng.normal(size=(rows, 20)) @ factor.T
    paid = (x + rng.normal(size=(rows, 20)) @ factor.T) @ weights.T > weights.sum(1)
    return weights, x, paid @ weights


class TestComponents:
    @pytest.mark.parametrize("central", [False, True])
    @pytest.mark.parametrize("outputs", [1, 2])
    def test_against_an_unsymmetric_eigenproblem(self, central, outputs):
        """Rows of W are eigenvectors of E[z zᵀ] Cov(x) with unit variance: no whitening."""
        x, rng = correlated()
        z = rng.normal(size=(200, outputs, 4)) * [3.0, 1.0, 0.3, 0.1] / x.std(0) + 1.0 / x.std(0)
        pca = DifferentialPCA(min_relevance=0.0, central=central).fit(x, dydx=z)
        covariance = np.cov(x.T, bias=True)
        moment = np.zeros((4, 4))
        for k in range(outputs):
            centred = z[:, k] - z[:, k].mean(0) * central
            own = sum(np.outer(row, row) for row in centred)
            moment += own / np.trace(own @ covariance)
        values, vectors = np.linalg.eig(moment @ covariance)
        order = np.argsort(-values.real)
        np.testing.assert_allclose(
            pca.relevance_ratio_, values.real[order] / values.real.sum(), rtol=1e-8
        )
        for row, w in zip(pca.components_, vectors.real.T[order], strict=True):
            expected = w / np.sqrt(w @ covariance @ w)
            expected *= np.sign(expected[np.abs(expected).argmax()])
            np.testing.assert_allclose(row, expected, rtol=1e-6)

    def test_new_inputs_are_white_and_new_slopes_uncorrelated(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        pca = DifferentialPCA(min_relevance=0.0).fit(x, dydx=z)
        v, slopes = pca.transform(x), pca.transform_gradient(z)
        np.testing.assert_allclose(v.T @ v / len(v), np.eye(4), atol=1e-8)
        moment = slopes.T @ slopes / len(slopes)
        np.testing.assert_allclose(
            moment, np.diag(pca.relevance_ratio_ * np.trace(moment)), atol=1e-8 * np.trace(moment)
        )

    def test_one_basket_of_twenty_stocks_is_one_component(self):
        weights, x, z = baskets(1)
        pca = DifferentialPCA().fit(x, dydx=z)
        assert pca.n_components_ == 1
        assert pca.relevance_ratio_[0] == pytest.approx(1.0, abs=1e-12)
        expected = weights[0] / (x @ weights[0]).std()
        np.testing.assert_allclose(pca.components_[0], expected, rtol=1e-8)

    def test_three_baskets_are_three_components_that_span_them(self):
        weights, x, z = baskets(3)
        pca = DifferentialPCA().fit(x, dydx=z)
        assert pca.n_components_ == 3
        coordinates = np.linalg.lstsq(pca.components_.T, weights.T, rcond=None)[0]
        np.testing.assert_allclose(pca.components_.T @ coordinates, weights.T, atol=1e-9)
        # The usual PCA needs nearly all directions to express the same baskets.
        usual = make_pipeline(StandardScaler(), PCA(3)).fit(x)[-1].components_ / x.std(0)
        missed = weights.T - usual.T @ np.linalg.lstsq(usual.T, weights.T, rcond=None)[0]
        assert np.linalg.norm(missed) > 0.5 * np.linalg.norm(weights)

    def test_how_many(self):
        x, rng = correlated()
        z = rng.normal(size=(200, 4)) * [1.0, 0.5, 0.05, 1e-5] / x.std(0)
        full = DifferentialPCA(min_relevance=0.0).fit(x, dydx=z)
        share = full.relevance_ratio_
        for wanted in (1, 3):
            pca = DifferentialPCA(wanted).fit(x, dydx=z)
            np.testing.assert_array_equal(pca.components_, full.components_[:wanted])
        for count in (1, 2, 3):
            fraction = share[:count].sum() - 0.5 * share[count - 1]
            assert DifferentialPCA(fraction).fit(x, dydx=z).n_components_ == count
        assert DifferentialPCA().fit(x, dydx=z).n_components_ == (share >= 1e-4).sum() < 4

    def test_units_do_not_matter(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        factor = np.array([1e-4, 1.0, 1e4, 10.0])
        plain = DifferentialPCA().fit(x, dydx=z)
        other = DifferentialPCA().fit(x * factor - 3.0, dydx=1e5 * z / factor)
        np.testing.assert_allclose(other.relevance_ratio_, plain.relevance_ratio_, rtol=1e-8)
        cosines = np.abs(np.mean(plain.transform(x) * other.transform(x * factor - 3.0), axis=0))
        np.testing.assert_allclose(cosines, 1.0, rtol=1e-8)


class TestMaps:
    def test_round_trip(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        pca = DifferentialPCA(min_relevance=0.0).fit(x, dydx=z)
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(x)), x, rtol=1e-9)
        back = pca.inverse_transform_gradient(pca.transform_gradient(z))
        np.testing.assert_allclose(back * x.std(0), z * x.std(0), atol=1e-8)
        small = DifferentialPCA(2).fit(x, dydx=z)
        v = small.transform(x)
        np.testing.assert_allclose(small.transform(small.inverse_transform(v)), v, atol=1e-9)
        # Here y depends on two directions, so that its gradients survive as well.
        again = small.inverse_transform_gradient(small.transform_gradient(z))
        np.testing.assert_allclose(again * x.std(0), z * x.std(0), atol=1e-8)

    def test_what_is_left_is_the_regression_on_the_components(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        pca = DifferentialPCA(2).fit(x, dydx=z)
        v = np.column_stack([np.ones(200), pca.transform(x)])
        expected = v @ np.linalg.lstsq(v, x, rcond=None)[0]
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(x)), expected, rtol=1e-9)

    def test_chain_rule_against_finite_differences(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        pca = DifferentialPCA(min_relevance=0.0).fit(x, dydx=z)
        mean, scale = x.mean(0), x.std(0)

        def f(points):
            return np.sum(np.sin((points - mean) / scale), axis=1)

        gradient = np.cos((x - mean) / scale) / scale
        carried = pca.transform_gradient(gradient)
        v, h = pca.transform(x), 1e-5
        for c in range(4):
            bump = h * np.eye(4)[c]
            up, down = f(pca.inverse_transform(v + bump)), f(pca.inverse_transform(v - bump))
            np.testing.assert_allclose(carried[:, c], (up - down) / (2 * h), atol=1e-8)
        # and back: v ↦ Σ sin(v_c), differentiated with respect to x
        back = pca.inverse_transform_gradient(np.cos(v))
        for j in range(4):
            bump = h * scale * np.eye(4)[j]
            ups, downs = np.sin(pca.transform(x + bump)), np.sin(pca.transform(x - bump))
            difference = (ups - downs).sum(1) / (2 * h)
            np.testing.assert_allclose(back[:, j] * scale[j], difference, rtol=1e-6, atol=1e-6)

    def test_kinds_shapes_and_dtypes(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        names = list("abcd")
        pca = DifferentialPCA(2).fit(
            pd.DataFrame(x, columns=names), dydx=dict(zip(names, z.T, strict=True))
        )
        assert pca.get_feature_names_out().tolist() == ["differentialpca0", "differentialpca1"]
        plain = DifferentialPCA(2).fit(torch.from_numpy(x), dydx=z[:, None])
        np.testing.assert_array_equal(pca.components_, plain.components_)
        tensor = torch.from_numpy(x).float()
        assert plain.transform(tensor).dtype == torch.float32
        assert plain.inverse_transform(plain.transform(tensor)).shape == tensor.shape
        jacobian = plain.transform_gradient(torch.from_numpy(np.stack([z, -z], 1)))
        assert jacobian.shape == (200, 2, 2)
        assert plain.inverse_transform_gradient(jacobian).shape == (200, 2, 4)
        assert isinstance(jacobian, torch.Tensor)

    def test_a_gradient_with_an_unknown_entry_is_unknown(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        holes = z.copy()
        holes[::3, 1] = np.nan
        keep = np.arange(200) % 3 != 0
        pca = DifferentialPCA(2).fit(x, dydx=holes)
        carried = pca.transform_gradient(holes)
        assert np.isnan(carried[::3]).all()
        assert np.isfinite(carried[keep]).all()
        # Only E[z zᵀ] loses the rows; the inputs of all of them count in the whitening.
        zeros = np.where(keep[:, None], z, 0.0)
        np.testing.assert_allclose(
            pca.components_, DifferentialPCA(2).fit(x, dydx=zeros).components_
        )


class TestSingularData:
    def test_null_axes_are_dropped(self):
        x, _ = correlated()
        _, z = ridge_function(x)
        wide = np.column_stack([x, x[:, 0] + x[:, 1], np.full(200, 3.0)])
        slopes = np.column_stack([z, np.zeros(200), np.zeros(200)])
        pca = DifferentialPCA(min_relevance=0.0).fit(wide, dydx=slopes)
        assert pca.n_components_ == 4
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(wide)), wide, rtol=1e-9)
        plain = DifferentialPCA().fit(x, dydx=z)
        np.testing.assert_allclose(pca.relevance_ratio_[:2], plain.relevance_ratio_[:2], rtol=1e-9)

    def test_fewer_rows_than_inputs(self):
        x = np.random.default_rng(0).normal(size=(3, 6))
        pca = DifferentialPCA(min_relevance=0.0).fit(x, dydx=x)
        assert pca.n_components_ == 2
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(x)), x, atol=1e-12)


class TestRefusals:
    @pytest.mark.parametrize(
        ("x", "dydx", "words"),
        [
            ([[0.0], [1.0]], None, r"requires dydx.*sklearn.decomposition.PCA"),
            ([[1.0], [1.0]], [[1.0], [2.0]], r"X of shape \(2, 1\) .* does not vary"),
            ([[0.0], [1.0]], [[0.0], [0.0]], "all derivatives are zero"),
            (np.eye(2), [[1.0, None], [2.0, None]], r"inputs \[1\] have none at all"),
            (np.eye(2), [[1.0, None], [None, 2.0]], "all derivatives known.*none has"),
        ],
    )
    def test_data(self, x, dydx, words):
        with pytest.raises(InputError, match=words):
            DifferentialPCA().fit(x, dydx=dydx)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"n_components": 0}, "n_components None, an integer .* got 0"),
            ({"n_components": 1.5}, "fraction in .* got 1.5"),
            ({"n_components": 3}, "n_components=3, but X varies in 2 directions"),
            ({"min_relevance": 1.0}, "min_relevance in .* got 1.0"),
        ],
    )
    def test_parameters(self, settings, words):
        with pytest.raises(InputError, match=words):
            DifferentialPCA(**settings).fit(np.eye(3)[:, :2], dydx=np.eye(3)[:, :2])

    def test_shapes_of_gradients(self):
        pca = DifferentialPCA(1).fit(np.eye(3), dydx=np.eye(3))
        with pytest.raises(ShapeError, match=r"dydx of shape \[N, 3\] or \[N, K, 3\], got \(2, 1"):
            pca.transform_gradient(np.ones((2, 1)))
        with pytest.raises(ShapeError, match=r"dydv of shape \[N, 1\] or \[N, K, 1\], got \(2, 3"):
            pca.inverse_transform_gradient(np.ones((2, 3)))
        with pytest.raises(NotFittedError):
            DifferentialPCA().transform_gradient(np.ones((2, 1)))


class HalfSquare(DifferentialPCA):
    """Differential PCA of y = |x|² / 2, whose derivative is x: so that `fit(X)` is enough."""

    def fit(self, X, y=None):
        return super().fit(X, y, X)


class TestScikitLearn:
    def test_check_estimator(self):
        with warnings.catch_warnings():
            # The array API check needs an environment variable that is read at import.
            warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API")
            results = check_estimator(HalfSquare(), on_fail=None, on_skip=None)
        failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
        assert failed == []
        assert sum(r["status"] == "passed" for r in results) > 45

    def test_fit_transform_takes_derivatives(self):
        x, _ = correlated()
        y, z = ridge_function(x)
        pca = DifferentialPCA(2)
        np.testing.assert_array_equal(pca.fit_transform(x, y, dydx=z), pca.transform(x))


class TestGain:
    def test_regression_in_one_of_twenty_dimensions(self):
        """Degree 5 in 20 inputs has 53,130 terms; in the one component that matters it has 6."""
        train, test = reference_problem(20, 4096)
        pca = DifferentialPCA().fit(train.x, dydx=train.dydx)
        model = DifferentialPolynomialRegression(5)
        model.fit(pca.transform(train.x), train.y, pca.transform_gradient(train.dydx))
        value, slope = model.predict(pca.transform(test.x), return_gradient=True)
        greeks = pca.inverse_transform_gradient(slope)
        linear = DifferentialPolynomialRegression(1).fit(train.x, train.y, train.dydx)
        missed = np.sqrt(np.mean((linear.predict(test.x) - test.y) ** 2))
        assert missed > 0.03  # the premise: a line is not enough
        assert np.sqrt(np.mean((value - test.y) ** 2)) < 0.006
        assert np.sqrt(np.mean((greeks - test.dydx) ** 2)) < 0.006
