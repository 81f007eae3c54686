"""Which optimizer, for how long: chosen from the data, with the reason."""

from dataclasses import dataclass
from math import isnan, nan

import torch
from torch import Tensor

from pullback.errors import InputError
from pullback.learning.data import DifferentialData

# Adam takes at least this many steps, as the reference implementation does for 4,096 rows and more.
STEPS = 1_600
# Above these sizes a full batch costs more than it brings.
FEW_ROWS, FEW_NUMBERS = 5_000, 200_000
# The trapezoid rule between neighbours misses y by more than this share of its spread: noise.
NOISE = 0.15


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        optimizer: "adam" or "lbfgs".
        epochs: passes over the data for Adam, iterations for L-BFGS.
        batch_size: rows a step; all of them for L-BFGS.
        learning_rate: peak of Adam's cycle.
        reason: why, in a sentence.
    """

    optimizer: str
    epochs: int
    batch_size: int
    learning_rate: float
    reason: str


def choose_recipe(
    data: DifferentialData,
    *,
    optimizer: str = "auto",
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
) -> Recipe:
    """Fill in what the user left open.

    Args:
        data: standardised training rows.
        optimizer: "auto", "adam" or "lbfgs".
        epochs: None chooses.
        batch_size: None chooses.
        learning_rate: None chooses; L-BFGS has none.

    Raises:
        InputError: an unknown optimizer, or a number out of range.
    """
    if optimizer not in ("auto", "adam", "lbfgs"):
        raise InputError(f"optimizer: expected 'auto', 'adam' or 'lbfgs', got {optimizer!r}")
    for name, value in (
        ("epochs", epochs),
        ("batch_size", batch_size),
        ("learning_rate", learning_rate),
    ):
        if value is not None and not value > 0:
            raise InputError(f"{name}: expected a number above 0, got {value}")
    reason = f"{optimizer}: asked for"
    if optimizer == "auto":
        optimizer, reason = _choose(data)
    rows = len(data)
    if optimizer == "lbfgs":
        return Recipe("lbfgs", epochs or 2_000, rows, 1.0, reason)
    batch = min(rows, batch_size or max(256, rows // 16))
    per_epoch = max(1, round(rows / batch))
    return Recipe(
        "adam", epochs or max(100, -(-STEPS // per_epoch)), batch, learning_rate or 0.01, reason
    )


def _choose(data: DifferentialData) -> tuple[str, str]:
    rows, numbers = len(data), len(data) * data.x.shape[1] * data.y.shape[1]
    if rows > FEW_ROWS or numbers > FEW_NUMBERS:
        return "adam", f"adam: {rows} rows are too many for full-batch L-BFGS"
    if data.dydx is None:
        return "adam", "adam: without derivatives, noise in the values can't be told from curvature"
    noise = noise_share(data.x, data.y, data.dydx)
    if isnan(noise):
        return "adam", "adam: no two neighbours have known derivatives, to tell noise by"
    if noise > NOISE:
        return "adam", (
            f"adam: between neighbours, values differ from what their derivatives say by "
            f"{noise:.0%} of their spread: the labels are noisy, and L-BFGS would fit the noise"
        )
    return "lbfgs", (
        f"lbfgs: {rows} rows whose values and derivatives agree between neighbours to "
        f"{noise:.1%} of the spread: few and without noise"
    )


def noise_share(x: Tensor, y: Tensor, dydx: Tensor) -> float:
    """How far Δy is from ½(z_a + z_b)·Δx between nearest neighbours, as a share of y's spread.

    For exact labels this is the error of the trapezoid rule, of third order in the distance; for
    noisy ones it is the noise. The median over rows, the largest over outputs; NaN if
    nothing is known.
    """
    rows = torch.arange(len(x))[:: max(1, len(x) // 1_000)]
    near = torch.cdist(x[rows], x)
    near[torch.arange(len(rows)), rows] = torch.inf
    other = near.argmin(1)
    step = (x[other] - x[rows]).unsqueeze(1)
    slope = 0.5 * (dydx[rows] + dydx[other])
    miss = (y[other] - y[rows] - (slope * step).sum(2)).abs()
    # Median absolute deviation of a normal is 0.6745 of its standard deviation; two rows' noise.
    share = miss.nanmedian(0).values / 0.6745 / 2**0.5
    return float(share[~share.isnan()].amax()) if not share.isnan().all() else nan
