"""Jumps of a payoff along one input, found by bisection.

A row whose bump the labels do not explain is bisected: always into the half with the larger change.
After 30 halvings the interval is 1e-9 of the bump; a change that is still there is a jump. A kink is
gone by then, and so is a slope that is merely steep.
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
        slope: what jumps add to the mean slope, Σ J / 2h over all rows.
        row: one such row, -1 if there is none.
        at: the input where that row jumps.
    """

    share: float = 0.0
    size: float = 0.0
    slope: float = 0.0
    row: int = -1
    at: float = float("nan")


def find_jumps(
    value: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    step: float,
    unexplained: Tensor,
    spread: float,
) -> Jumps:
    """Bisect the rows whose bump is not explained.

    Args:
        value: the output [m] in rows [m] with the input set to [m].
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
    jump, where = _bisect(lambda column: value(used, column), x[used] - step, x[used] + step)
    found = jump.abs() > least
    if not found.any():
        return Jumps()
    first = int(found.nonzero()[0, 0])
    scale = len(rows) / len(used) / len(x)
    return Jumps(
        share=float(found.sum()) * scale,
        size=float(jump[found].abs().mean()),
        slope=float(jump[found].sum()) / (2.0 * step) * scale,
        row=int(used[first]),
        at=float(where[first]),
    )


def _bisect(value: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The change that survives, and where."""
    y_low, y_high = value(low), value(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        y = value(middle)
        left = (y - y_low).abs() > (y_high - y).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        y_low, y_high = torch.where(left, y_low, y), torch.where(left, y, y_high)
    return y_high - y_low, 0.5 * (low + high)
