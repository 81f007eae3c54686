"""The label check finds what is wrong, says what it is, and leaves alone what is right."""

import numpy as np
import pytest

from pullback.errors import ShapeError
from pullback.learning._label_moments import dyadic
from pullback.learning._neighbours import neighbourhood
from pullback.learning.label_check import check_labels
from pullback.pathwise.markets.bachelier import reference_problem


def _smooth(rows=400, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, dim))
    w, q = np.linspace(-1.2, 1.0, dim), np.linspace(0.3, 1.0, dim)
    y = np.sin(x @ w) + (x**2) @ q
    return x, y, np.cos(x @ w)[:, None] * w + 2 * q * x


def _noisy(dim=7, rows=2048):
    train, _ = reference_problem(dim, rows)
    return train.x, train.y, train.dydx


def _rastrigin(rows):
    x = np.random.default_rng(0).uniform(-1.0, 1.5, (rows, 2))
    y = 20.0 + (x**2 - 10.0 * np.cos(2 * np.pi * x)).sum(axis=1)
    return x, y, 2.0 * x + 20.0 * np.pi * np.sin(2 * np.pi * x)


def _x_sin_x():
    x = np.linspace(0.0, 10.0, 4)[:, None]
    return x, (x * np.sin(x))[:, 0], np.sin(x) + x * np.cos(x)


def _irrelevant():
    x, y, dydx = _smooth()
    more = np.random.default_rng(1).normal(size=(400, 2))
    return np.hstack([x, more]), y, np.hstack([dydx, 0 * more[:, :1], 1e-6 * more[:, 1:]])


def _constant_and_duplicated_columns():
    x, y, dydx = _smooth()
    half = 0.5 * dydx[:, :1]
    one = np.ones((400, 1))
    return np.hstack([x, x[:, :1], one]), y, np.hstack([half, dydx[:, 1:], half, one])


def _duplicated_rows():
    x, y, dydx = _noisy(2, 512)
    again = np.random.default_rng(0).integers(0, 512, 1024)
    return x[again], y[again], dydx[again]


def _masked():
    x, y, dydx = _noisy(5, 2048)
    rng = np.random.default_rng(0)
    dydx[rng.uniform(size=dydx.shape) < 0.5] = np.nan
    dydx[:, 3] = np.nan
    y[rng.uniform(size=y.shape) < 0.1] = np.nan
    return x, y, dydx


def _gradient_noise_of_two_deviations():
    x, y, dydx = _smooth(1000)
    noise = np.random.default_rng(0).normal(size=dydx.shape)
    return x, y, dydx + 2.0 * dydx.std(axis=0) * noise


def _near_linear():
    x = np.random.default_rng(0).normal(size=(200, 3))
    return x, x @ [1.0, -2.0, 3.0], np.tile([1.0, -2.0, 3.0], (200, 1))


def _undersampled():
    """A fast sine of one direction of twenty: neighbours lie half a wave apart."""
    x = np.random.default_rng(0).normal(size=(1000, 20))
    w = np.full(20, 3.0 / np.sqrt(20))
    return x, np.sin(x @ w), np.cos(x @ w)[:, None] * w


RIGHT = {
    "exact": _smooth,
    "noisy, D=1": lambda: _noisy(1, 1024),
    "noisy, D=7": _noisy,
    "noisy, D=50": lambda: _noisy(50, 1024),
    "curved, 100 rows": lambda: _rastrigin(100),
    "four rows": _x_sin_x,
    "irrelevant inputs": _irrelevant,
    "constant and duplicated columns": _constant_and_duplicated_columns,
    "duplicated rows": _duplicated_rows,
    "gaps": _masked,
    "noisy gradients": _gradient_noise_of_two_deviations,
    "single precision": lambda: tuple(part.astype(np.float32) for part in _smooth()),
    "linear": _near_linear,
    "undersampled": _undersampled,
    "more inputs than rows": lambda: _smooth(20, 30),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_labels_raise_no_alarm(case):
    report = check_labels(*RIGHT[case]())
    assert report.findings == ()
    assert all(factor.verdict != "inconsistent" for factor in report.factors)


def test_exact_labels_have_factors_of_one():
    report = check_labels(*_smooth())
    assert report.ok
    assert [factor.verdict for factor in report.factors] == ["consistent"] * 3
    assert [factor.value for factor in report.factors] == pytest.approx([1, 1, 1], abs=0.05)


def test_noise_does_not_bias_the_factors():
    # Regression of Δy on noisy labels would give far less than 1: noise of 2 sd, attenuation 1/5.
    report = check_labels(*_gradient_noise_of_two_deviations())
    for factor in report.factors:
        assert abs(factor.value - 1.0) < 4.0 * factor.standard_error + 0.05
        assert factor.standard_error < 0.25


def test_few_rows_cannot_tell():
    (factor,) = check_labels(*_x_sin_x()).factors
    assert factor.verdict == "cannot tell"
    assert np.isnan(factor.value)


@pytest.mark.parametrize("data", [_smooth, _noisy], ids=["exact", "noisy"])
@pytest.mark.parametrize("value", [-1.0, 627.5, 1 / 3])
def test_a_common_factor(data, value):
    x, y, dydx = data()
    (finding,) = check_labels(x, y, value * dydx).findings
    assert finding.kind == ("sign" if value == -1.0 else "factor")
    assert finding.inputs == tuple(range(x.shape[1]))
    assert finding.value == pytest.approx(1 / value, rel=0.15)


@pytest.mark.parametrize("data", [_smooth, _noisy], ids=["exact", "noisy"])
@pytest.mark.parametrize("value", [-1.0, 100.0, 1e-4])
def test_the_factor_of_one_column(data, value):
    x, y, dydx = data()
    column = 2
    dydx = dydx.copy()
    dydx[:, column] *= value
    (finding,) = check_labels(x, y, dydx).findings
    assert finding.kind == ("sign" if value == -1.0 else "factor")
    assert finding.inputs == (column,)
    assert finding.value == pytest.approx(1 / value, rel=0.25)


def test_swapped_columns_are_named():
    x, y, dydx = _smooth()
    (finding,) = check_labels(x, y, dydx[:, [1, 0, 2]], names=["spot", "vol", "rate"]).findings
    assert finding.kind == "swapped"
    assert finding.inputs == (0, 1)
    assert finding.sentence == "the derivatives of y by spot and by vol are swapped"


def test_inputs_scaled_in_front():
    x, y, dydx = _smooth()
    units = np.array([0.01, 10.0, 200.0])
    raw_x, raw_dydx = x * units, dydx / units
    assert check_labels(raw_x, y, raw_dydx).ok
    scaled = (raw_x - raw_x.mean(axis=0)) / raw_x.std(axis=0)
    (finding,) = check_labels(scaled, y, raw_dydx).findings
    assert finding.kind == "scaled-inputs"
    assert "scale inside the estimator instead: DifferentialRegressor scales by itself" in (
        finding.remedy
    )


@pytest.mark.parametrize("rows", [1000, 2048])
def test_rows_in_another_order(rows):
    x, y, dydx = _smooth(rows, 2)
    shuffled = dydx[np.random.default_rng(0).permutation(rows)]
    assert [finding.kind for finding in check_labels(x, y, shuffled).findings] == ["unrelated"]


def test_rows_in_another_order_under_noise():
    x, y, dydx = _noisy(7, 4096)
    shuffled = dydx[np.random.default_rng(0).permutation(4096)]
    assert [finding.kind for finding in check_labels(x, y, shuffled).findings] == ["unrelated"]


def test_a_jump_has_pathwise_derivatives_of_zero():
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 0.3, (4096, 2))
    y = 1.0 * (x @ [0.6, 0.4] + 0.2 * rng.normal(size=4096) > 1.0)
    (finding,) = check_labels(x, y, np.zeros_like(x)).findings
    assert finding.kind == "zero"
    assert finding.inputs == (0, 1)
    assert "smooth the jump" in finding.remedy


def test_derivatives_of_another_output():
    x, first, slopes = _smooth()
    w = np.array([1.0, 0.5, -1.0])
    second = np.exp(0.5 * x @ w)
    y = np.stack([first, second], axis=1)
    dydx = np.stack([slopes, 0.5 * second[:, None] * w], axis=1)
    assert check_labels(x, y, dydx).ok
    findings = check_labels(x, y, dydx[:, ::-1], output_names=["price", "cost"]).findings
    assert [finding.kind for finding in findings] == ["other-output"] * 2
    assert findings[1].output == 1
    assert findings[0].sentence == "the derivatives of price do not fit it; those of cost do"


def test_a_slightly_wrong_derivative_shows_in_the_estimate():
    x, y, dydx = _smooth(2000, 2)
    report = check_labels(x, y, 1.25 * dydx)
    for factor in report.factors:
        assert factor.value == pytest.approx(0.8, abs=0.02)
    assert report.ok, "a quarter more is no alarm"


def test_the_report_repeats_itself_and_leaves_the_data_alone():
    data = _masked()
    copies = [part.copy() for part in data]
    first, second = check_labels(*data), check_labels(*data)
    assert repr(first) == repr(second)
    for part, copy in zip(data, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def _unusable():
    x, y, dydx = _smooth(100)
    yield "nothing known", (x, y, np.nan * dydx)
    yield "constant y", (x, 0 * y, dydx)
    yield "constant x", (0 * x, y, dydx)
    yield "no rows", (x[:0], y[:0], dydx[:0])
    yield "labels of one row only", (x, y, np.where(np.arange(100)[:, None] == 7, dydx, 0.0))


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in _unusable()])
def test_data_that_say_nothing(data):
    report = check_labels(*data)
    assert [factor.verdict for factor in report.factors] == ["cannot tell"] * 3


@pytest.mark.parametrize("scale", [1e-150, 1e20])
def test_units_do_not_matter(scale):
    x, y, dydx = _smooth()
    units = np.array([1e12, 1.0, 1e-12])
    assert check_labels(x * units, scale * y, scale * dydx / units).ok
    (finding,) = check_labels(x * units, scale * y, -scale * dydx / units).findings
    assert finding.kind == "sign"


def test_infinite_labels_are_unknown_ones():
    x, y, dydx = _smooth()
    dydx[5, 1] = y[9] = np.inf
    assert [factor.verdict for factor in check_labels(x, y, dydx).factors] == ["consistent"] * 3


def test_shapes_that_do_not_fit():
    x, y, dydx = _smooth()
    with pytest.raises(ShapeError, match=r"check_labels: expected x \[N, D\].*dydx \[3, 400\]"):
        check_labels(x, y, dydx.T)


def test_pairs_never_hold_a_row_twice_nor_their_mates():
    x = np.random.default_rng(0).normal(size=(300, 2))
    hood = neighbourhood(x, np.ones(2))
    assert len(set(hood.order.tolist())) == len(hood.order)
    for pairs in hood.pairs(np.random.default_rng(0)):
        unordered = {
            frozenset(pair) for pair in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)
        }
        assert len(unordered) == len(pairs.a)
        assert all(len(pair) == 2 for pair in unordered)
        for mates, own, other in (
            (pairs.mates_a, pairs.a, pairs.b),
            (pairs.mates_b, pairs.b, pairs.a),
        ):
            assert not (mates == own[:, None]).any()
            assert not (mates == other[:, None]).any()
            assert (mates >= 0).sum(axis=1).min() >= 2


def test_dyadic_errors_are_those_of_a_double_loop():
    rng = np.random.default_rng(0)
    pairs = np.array([(i, j) for i in range(12) for j in range(i) if rng.uniform() < 0.4])
    influence = rng.normal(size=(len(pairs), 2)) + 1.0
    error, _ = dyadic(influence, pairs[:, 0], pairs[:, 1], 12)
    for column in range(2):
        total = sum(
            influence[p, column] * influence[q, column]
            for p in range(len(pairs))
            for q in range(len(pairs))
            if set(pairs[p]) & set(pairs[q])
        )
        assert error[column] == pytest.approx(np.sqrt(total))
