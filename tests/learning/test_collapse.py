"""Collapse: a constant is noticed where there was something to learn, and only there."""

import pytest
import torch
from tests.learning.problems import Apply, draw

from pullback.learning.collapse import is_collapsed, is_diverged
from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin

X = draw(400, 3)


def constant(outputs=1, wobble=0.0):
    return Twin(Apply(lambda x: wobble * x[:, :1].expand(-1, outputs)))


SIGNALS = {
    "a line": X[:, :1] * 1.0,
    "a parabola": (X[:, :1] ** 2 - 1) / 2**0.5,
    "a line under noise": (X[:, :1] + 3 * draw(400, 1, seed=5)) / 10**0.5,
}
NOTHING = {
    "noise": draw(400, 1, seed=9),
    "a constant": torch.zeros(400, 1).double(),
    "no value known": torch.full((400, 1), torch.nan).double(),
}


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("wobble", [0.0, 1e-3])
def test_a_constant_where_there_is_a_signal(signal, wobble):
    assert is_collapsed(constant(wobble=wobble), DifferentialData(X, SIGNALS[signal]))


@pytest.mark.parametrize("signal", SIGNALS)
def test_not_where_predictions_vary(signal):
    assert not is_collapsed(constant(wobble=0.3), DifferentialData(X, SIGNALS[signal]))


@pytest.mark.parametrize("labels", NOTHING)
def test_not_where_there_is_nothing_to_learn(labels):
    assert not is_collapsed(constant(), DifferentialData(X, NOTHING[labels]))


def test_pure_noise_gives_no_alarm_in_a_hundred_draws():
    """The threshold is five deviations of the chi-squared: one alarm in some ten thousand."""
    alarms = [
        is_collapsed(constant(), DifferentialData(X, draw(400, 1, seed=seed)))
        for seed in range(100, 200)
    ]

    assert not any(alarms)


def test_each_output_is_looked_at():
    y = torch.cat([NOTHING["noise"], SIGNALS["a line"]], 1)

    assert is_collapsed(constant(outputs=2), DifferentialData(X, y))


def test_few_rows_are_not_judged():
    assert not is_collapsed(constant(), DifferentialData(X[:9], X[:9, :1]))


def test_unknown_values_are_left_out():
    y = torch.where(torch.arange(400)[:, None] % 2 == 0, torch.nan, X[:, :1])

    assert is_collapsed(constant(), DifferentialData(X, y))


def test_a_loss_above_that_of_predicting_nothing_is_divergence():
    data = DifferentialData(X, X[:, :1] ** 2, torch.ones(len(X), 1, X.shape[1]).to(X))
    loss = DifferentialLoss.of(data)
    nothing = float(loss(torch.zeros_like(data.y), data.y, torch.zeros_like(data.dydx), data.dydx))

    assert is_diverged(loss, data, 2.01 * nothing)
    assert not is_diverged(loss, data, 1.99 * nothing)
