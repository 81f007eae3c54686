"""DifferentialRegressor among scikit-learn's own tools."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from tests.learning.problems import field, two_fields

from pullback import DifferentialRegressor
from pullback.errors import LabelError, ShapeError

X, Y, DYDX = field(90)

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Weights enter the loss exactly as repeated rows do (tests/learning/test_loss.py), but the "
        "means and deviations that standardise the data are taken over rows, unweighted; and the "
        "check asks two iterative fits to agree to 1e-7."
    ),
}


def model(**more):
    return DifferentialRegressor(
        **{"hidden": (8,), "activation": "tanh", "epochs": 60, "random_state": 0, **more}
    )


class TestConventions:
    def test_every_check_but_the_listed_ones(self):
        results = check_estimator(
            model(), expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail=None
        )
        by_status = {}
        for result in results:
            by_status.setdefault(result["status"], set()).add(result["check_name"])

        assert not by_status.get("failed")
        assert by_status["xfail"] == set(EXPECTED_FAILURES), (
            "an expected failure has gone: list it no more"
        )
        assert len(by_status["passed"]) > 40

    def test_clone_copies_parameters_and_no_more(self):
        fitted = model(weight_decay=0.1).fit(X, Y, DYDX)
        again = clone(fitted)

        assert again.get_params() == fitted.get_params()
        assert not hasattr(again, "surrogate_")

    def test_every_parameter_can_be_set(self):
        names = model().get_params()
        settable = {name: object() for name in names}

        assert clone(model()).set_params(**settable).get_params() == settable
        with pytest.raises(ValueError, match="Invalid parameter 'alpha'"):
            model().set_params(alpha=1)

    @pytest.mark.parametrize("call", ["predict", "predict_gradient", "predict_hessian"])
    def test_unfitted(self, call):
        with pytest.raises(NotFittedError):
            getattr(model(), call)(X)

    def test_score_is_r2_with_weights(self):
        fitted = model().fit(X, Y, DYDX)
        gap = np.square(fitted.predict(X) - Y)

        assert fitted.score(X, Y) == pytest.approx(1 - gap.sum() / np.square(Y - Y.mean()).sum())
        assert fitted.score(X, Y, sample_weight=np.ones(90)) == pytest.approx(fitted.score(X, Y))

    def test_fitting_twice_starts_again(self):
        fitted = model().fit(X, Y, DYDX)
        first = fitted.predict(X)

        assert np.array_equal(fitted.fit(X, Y, DYDX).predict(X), first)

    def test_more_or_fewer_inputs_than_in_fit(self):
        with pytest.raises(
            ValueError, match="X has 1 features, but DifferentialRegressor is expecting 2"
        ):
            model(epochs=1).fit(X, Y).predict(X[:, :1])


class Recording(DifferentialRegressor):
    """Checks that the rows of dydx are those of X, wherever they were sliced."""

    def fit(self, X, y, dydx=None, **more):
        np.testing.assert_array_equal(dydx[:, 1], X[:, 0] * X[:, 1])
        return super().fit(X, y, dydx, **more)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


class TestModelSelection:
    def test_cross_validate_slices_derivatives(self):
        scores = cross_validate(
            Recording(hidden=(8,), activation="tanh", epochs=60, random_state=0),
            X, Y, cv=3, params={"dydx": DYDX}, error_score="raise",
        )  # fmt: skip
        without = cross_validate(model(optimizer="lbfgs"), X, Y, cv=3)

        assert scores["test_score"].min() > 0.99
        assert scores["test_score"].mean() > without["test_score"].mean() - 0.01

    @pytest.mark.usefixtures("routing")
    def test_by_metadata_routing(self):
        estimator = Recording(hidden=(8,), activation="tanh", epochs=30, random_state=0)
        with pytest.raises(UnsetMetadataPassedError, match="dydx"):
            cross_validate(estimator, X, Y, cv=3, params={"dydx": DYDX}, error_score="raise")
        estimator.set_fit_request(dydx=True)
        scores = cross_validate(estimator, X, Y, cv=3, params={"dydx": DYDX}, error_score="raise")

        assert len(scores["test_score"]) == 3

    @pytest.mark.usefixtures("routing")
    def test_grid_search_with_routing_and_three_axes(self):
        x, y, dydx = two_fields(60)
        search = GridSearchCV(
            model()
            .set_fit_request(dydx=True, sample_weight=True)
            .set_score_request(sample_weight=True),
            {"hidden": [(2,), (8,)], "derivative_weight": [0.0, 1.0]},
            cv=2,
            error_score="raise",
        )
        search.fit(x, y, dydx=dydx, sample_weight=np.ones(60))

        assert search.best_params_["hidden"] == (8,)
        assert search.predict(x).shape == (60, 2)
        assert search.best_estimator_.predict_gradient(x).shape == (60, 2, 2)

    def test_grid_search_over_numpys_numbers(self, tmp_path):
        search = GridSearchCV(
            model(), {"epochs": np.array([10, 20]), "weight_decay": np.array([0.0, 1e-3])}, cv=2
        )
        best = search.fit(X, Y).best_estimator_

        assert np.array_equal(
            DifferentialRegressor.load(best.save(tmp_path / "m")).predict(X), best.predict(X)
        )


class TestMisuse:
    def test_a_scaler_in_front_is_caught(self):
        """It scales X and leaves dydx in raw units."""
        scale = np.array([10.0, 10.0])
        pipeline = make_pipeline(StandardScaler(), model())

        with pytest.raises(LabelError, match="dydx contradicts y"):
            pipeline.fit(X * scale, Y, differentialregressor__dydx=DYDX / scale)

    def test_without_derivatives_a_pipeline_is_fine(self):
        pipeline = make_pipeline(StandardScaler(), model(optimizer="lbfgs", epochs=200))

        assert pipeline.fit(X, Y).score(X, Y) > 0.98

    def test_a_scaler_of_the_target_is_caught(self):
        scaled = TransformedTargetRegressor(model(), transformer=StandardScaler())

        with pytest.raises(LabelError, match="dydx contradicts y"):
            scaled.fit(X, 20 * Y, dydx=20 * DYDX)

    def test_one_model_per_output_is_caught(self):
        x, y, dydx = two_fields()

        with pytest.raises(ShapeError, match=r"MultiOutputRegressor, passes dydx whole: fit this"):
            MultiOutputRegressor(model()).fit(x, y, dydx=dydx)
