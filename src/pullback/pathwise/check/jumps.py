"""Jumps of a payoff along one input, found by bisection.

A row whose bump the labels do not explain is bisected: always into the half whose change its labels
explain less, so that a slope does not hide a small jump. After 30 halvings the interval is 1e-9 of
the bump; a change that is still there is a jump. A kink is gone by then, and so is a slope that is
merely steep.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

HALVINGS = 30
SMALLEST = 1e-3  # of the output's standard deviation
MOST_ROWS = 1024


@dataclass(frozen=True)
class Jumps:
    """Where [x - h, x + h] holds a jump.

    Attributes:
        share: part of the rows.
        size: mean absolute size.
        row: one such row, -1 if there is none.
        at: the input where that row jumps.
        balance: standard errors by which labels of rows without a jump differ from their bumps.
            Labels that leave jumps out agree there; those that account for them (a likelihood
            ratio, a soft derivative) make up there for what rows with a jump have too much.
    """

    share: float = 0.0
    size: float = 0.0
    row: int = -1
    at: float = float("nan")
    balance: float = 0.0


Label = Callable[[Tensor], tuple[Tensor, Tensor]]


def find_jumps(
    label: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    step: float,
    unexplained: Tensor,
    spread: float,
) -> Jumps:
    """Bisect the rows whose bump is not explained.

    Args:
        label: the output and its derivative, [m] each, in rows [m] with the input set to [m].
        x: the input, [n].
        step: h.
        unexplained: the part of y(x + h) - y(x - h) that labels do not explain, [n].
        spread: standard deviation of the output.
    """
    least = SMALLEST * spread
    rows = (unexplained.abs() > least).nonzero()[:, 0]
    if least == 0.0 or not len(rows):
        return Jumps()
    used = rows[torch.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).long()]
    jump, where = _bisect(lambda column: label(used, column), x[used] - step, x[used] + step)
    found = jump.abs() > least
    if not found.any():
        return Jumps()
    first = int(found.nonzero()[0, 0])
    return Jumps(
        share=float(found.sum()) * len(rows) / len(used) / len(x),
        size=float(jump[found].abs().mean()),
        row=int(used[first]),
        at=float(where[first]),
        balance=_score(unexplained[used[~found]]),
    )


def _score(values: Tensor) -> float:
    if len(values) < 2 or not float(values.std()) > 0:
        return 0.0
    return float(values.mean().abs() / values.std()) * len(values) ** 0.5


def _bisect(label: Label, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The change that survives, and where."""
    at_low, at_high = (low, *label(low)), (high, *label(high))
    for _ in range(HALVINGS):
        middle = 0.5 * (at_low[0] + at_high[0])
        between = (middle, *label(middle))
        left = _unexplained(at_low, between) > _unexplained(between, at_high)
        low_high = zip(at_low, between, at_high, strict=True)
        kept = [(torch.where(left, a, b), torch.where(left, b, c)) for a, b, c in low_high]
        at_low, at_high = zip(*kept, strict=True)
    return at_high[1] - at_low[1], 0.5 * (at_low[0] + at_high[0])


def _unexplained(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> Tensor:
    """Of a change, beside the mean of the derivatives at both ends."""
    (x_a, y_a, g_a), (x_b, y_b, g_b) = a, b
    return (y_b - y_a - 0.5 * (g_a + g_b) * (x_b - x_a)).abs()
