"""The label check finds what is wrong, and leaves alone what is right."""

import numpy as np
import pytest

from pullback.learning.label_check import check_labels
from pullback.pathwise.markets.bachelier import reference_problem


def _smooth(rows=400, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, dim))
    w, q = np.linspace(-1.2, 1.0, dim), np.linspace(0.3, 1.0, dim)
    y = np.sin(x @ w) + (x**2) @ q
    return x, y, np.cos(x @ w)[:, None] * w + 2 * q * x


def _kinds(report):
    return [finding.kind for finding in report.findings]


def test_right_labels_have_factors_of_one():
    report = check_labels(*_smooth())
    assert report.ok
    assert [factor.verdict for factor in report.factors] == ["consistent"] * 3
    assert [factor.value for factor in report.factors] == pytest.approx([1, 1, 1], abs=0.15)


def test_all_signs():
    x, y, dydx = _smooth()
    (finding,) = check_labels(x, y, -dydx).findings
    assert finding.kind == "sign"
    assert finding.inputs == (0, 1, 2)
    assert finding.value == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("dim", [1, 7])
def test_noisy_pathwise_labels_pass_and_their_negatives_do_not(dim):
    train, _ = reference_problem(dim, 2048)
    assert check_labels(train.x, train.y, train.dydx).ok
    assert _kinds(check_labels(train.x, train.y, -train.dydx)) == ["sign"]
