"""Metrics against scikit-learn and closed forms, and at every point where they have no value."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.metrics.pairwise import paired_cosine_distances

from pullback.learning.columns import Columns
from pullback.reports.metrics import cosines, measure, r2, right_sign, rmse, spread

COLUMNS = Columns(("a", "b", "c"), ("u", "v"))
NAN = np.nan


def problem(rows=200):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 3)) * [1.0, 10.0, 0.1]
    y, dydx = rng.normal(size=(rows, 2)) * [1.0, 50.0], rng.normal(size=(rows, 2, 3))
    return x, y, y + rng.normal(size=y.shape), dydx, dydx + rng.normal(size=dydx.shape)


def test_values_and_derivatives_agree_with_sklearn():
    x, y, y_hat, dydx, dydx_hat = problem()
    found = measure(COLUMNS, x, y, y_hat, dydx, dydx_hat)
    assert [m.name for m in found.derivatives] == list(COLUMNS.derivatives)
    for k, metric in enumerate(found.values):
        assert_allclose(metric.r2, r2_score(y[:, k], y_hat[:, k]), rtol=1e-12)
        assert_allclose(metric.rmse, root_mean_squared_error(y[:, k], y_hat[:, k]), rtol=1e-12)
        assert_allclose(metric.scaled_rmse, metric.rmse / y[:, k].std(), rtol=1e-12)
        assert metric.right_sign is None
    for i, metric in enumerate(found.derivatives):
        k, d = divmod(i, 3)
        truth, predicted = dydx[:, k, d], dydx_hat[:, k, d]
        error = root_mean_squared_error(truth, predicted)
        assert_allclose(metric.r2, r2_score(truth, predicted), rtol=1e-12)
        assert_allclose(metric.rmse, error, rtol=1e-12)
        assert_allclose(metric.scaled_rmse, error * x[:, d].std() / y[:, k].std(), rtol=1e-12)
        assert_allclose(metric.right_sign, np.mean(truth * predicted > 0), rtol=1e-12)
    assert_allclose(found.mean_derivative_rmse, np.mean([m.rmse for m in found.derivatives]))


def test_cosines_agree_with_sklearn_in_scaled_inputs():
    x, y, y_hat, dydx, dydx_hat = problem()
    found = measure(COLUMNS, x, y, y_hat, dydx, dydx_hat).directions
    for k, direction in enumerate(found):
        scaled = [gradient[:, k] * x.std(0) for gradient in (dydx, dydx_hat)]
        expected = 1.0 - paired_cosine_distances(*scaled)
        assert_allclose(direction.cosine, expected.mean(), rtol=1e-12)
        assert_allclose(direction.low_cosine, np.quantile(expected, 0.05), rtol=1e-12)


def test_units_change_no_metric_that_claims_to_have_none():
    x, y, y_hat, dydx, dydx_hat = problem()
    unit_x, unit_y = np.array([1e6, 1.0, 1e-3]), np.array([1e-4, 7.0])
    factors = unit_y[:, None] / unit_x
    plain = measure(COLUMNS, x, y, y_hat, dydx, dydx_hat)
    other = measure(
        COLUMNS, x * unit_x, y * unit_y, y_hat * unit_y, dydx * factors, dydx_hat * factors
    )
    for a, b in zip(
        (*plain.values, *plain.derivatives), (*other.values, *other.derivatives), strict=True
    ):
        assert_allclose(a.scaled_rmse, b.scaled_rmse, rtol=1e-9)
        assert_allclose(a.r2, b.r2, rtol=1e-9)
        assert a.right_sign == b.right_sign
    for a, b in zip(plain.directions, other.directions, strict=True):
        assert_allclose(a.cosine, b.cosine, rtol=1e-9)


@pytest.mark.parametrize("wrong", ["factor", "shifted rows", "swapped inputs", "flipped"])
def test_metrics_see_a_wrong_gradient(wrong):
    x, y, _, dydx, _ = problem()
    bad = {
        "factor": dydx * 1.001,
        "shifted rows": np.roll(dydx, 1, axis=0),
        "swapped inputs": dydx[:, :, ::-1],
        "flipped": -dydx,
    }[wrong]
    right, found = (measure(COLUMNS, x, y, y, dydx, guess) for guess in (dydx, bad))
    assert all(metric.rmse == 0.0 and metric.r2 == 1.0 for metric in right.derivatives)
    assert all(direction.cosine == pytest.approx(1.0) for direction in right.directions)
    for metric in found.derivatives:
        if wrong == "swapped inputs" and metric.name.endswith("/db"):
            continue  # the middle one stays where it is
        assert metric.rmse > 5e-4
        assert metric.r2 < 1.0
        assert wrong == "factor" or metric.right_sign < 0.8
    if wrong == "flipped":
        assert all(direction.cosine == pytest.approx(-1.0) for direction in found.directions)


def test_unknown_truths_are_left_out():
    truth = np.array([1.0, NAN, 3.0, NAN])
    guess = np.array([2.0, 9.0, 2.0, -9.0])
    assert rmse(truth, guess) == 1.0
    assert r2(truth, guess) == 0.0
    assert right_sign(truth, guess) == 1.0
    assert rmse(truth * NAN, guess) is None
    assert r2(truth * NAN, guess) is None
    assert right_sign(truth * NAN, guess) is None


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9, -1e-9])
def test_r2_of_a_constant_has_no_meaning(constant):
    """0.1 summed up is not exactly 0.1: rounding must not make a spread."""
    truth = np.full(1000, constant)
    assert spread(truth) == 0.0
    assert r2(truth, truth + 1.0) is None
    just_varying = truth + 1e-6 * max(abs(constant), 1e-9) * np.arange(1000.0)
    assert r2(just_varying, just_varying) == 1.0


@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows(rows):
    x, y, y_hat, dydx, dydx_hat = problem(rows)
    for metric in measure(COLUMNS, x, y, y_hat, dydx, dydx_hat).derivatives:
        assert metric.r2 is None
        assert metric.scaled_rmse is None
        assert (metric.rmse is None) == (rows == 0)
        assert metric.note.startswith("no known truth" if rows == 0 else "one row")


def test_signs_of_zeros_are_left_out():
    truth = np.array([1.0, -1.0, 0.0, 1e-12])
    assert right_sign(truth, np.array([2.0, 3.0, -1.0, -1.0])) == 0.5
    assert right_sign(np.zeros(3), np.ones(3)) is None
    assert right_sign(np.array([1.0]), np.array([0.0])) == 0.0


def test_cosines_at_their_singular_points():
    truth = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, NAN], [1e-200, 0.0], [NAN, NAN]])
    guess = np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 5.0], [1.0, 0.0], [1.0, 1.0]])
    # The first is zero, the fourth nearly, the last unknown: left out. The second is missed.
    assert_allclose(cosines(truth, guess), [0.0, 1.0])
    tiny = 1e-200 * np.array([[1.0, 1.0]])
    assert_allclose(cosines(tiny, tiny), [1.0])  # though the squared length is 0.0
    assert len(cosines(np.zeros((3, 2)), np.ones((3, 2)))) == 0


def test_notes_say_why():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, 3))
    x[:, 1] = 4.0
    y = np.stack([x[:, 0], np.full(50, 2.0)], axis=1)
    dydx = rng.normal(size=(50, 2, 3))
    dydx[:, 0, 0] = 1.0
    dydx[:, 0, 2] = 1.0 + 1e-4 * rng.normal(size=50)
    found = measure(COLUMNS, x, y, y, dydx, dydx)
    notes = {metric.name: metric.note for metric in (*found.values, *found.derivatives)}
    assert notes["u"] == ""
    assert notes["v"] == "constant: R² has no meaning"
    assert notes["du/da"] == "constant: R² has no meaning"
    assert notes["du/db"] == "no scaled RMSE: its input is constant here"
    assert notes["du/dc"] == "hardly varies: R² says little, the scaled RMSE counts"
    assert notes["dv/da"] == "no scaled RMSE: the values do not vary here"


def test_a_tiny_derivative_is_not_judged_by_r2():
    """A published case: R² of -18,000 on a derivative that hardly moves the output."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, 1))
    dydx = 1e-5 * rng.normal(size=(100, 1, 1))
    found = measure(
        Columns(("a",), ("u",)), x, x, x, dydx, dydx + 1e-3 * rng.normal(size=dydx.shape)
    )
    (metric,) = found.derivatives
    assert metric.r2 < -1000
    assert metric.scaled_rmse < 2e-3
    assert "hardly varies" in metric.note
