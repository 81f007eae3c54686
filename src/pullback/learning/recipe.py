"""Which optimizer, for how long: chosen from the data, with the reason."""

from dataclasses import dataclass
from math import nan

from pullback.errors import InputError
from pullback.learning.data import DifferentialData
from pullback.learning.noise import Noise, measure_noise

FULL_BATCH = ("broyden", "lbfgs")
OPTIMIZERS = ("auto", "adam", *FULL_BATCH)
# Adam takes at least this many steps, as the reference implementation does for 4,096 rows and more.
STEPS = 1_600
# Above these sizes a full batch costs more than it brings.
FEW_ROWS, FEW_NUMBERS = 5_000, 200_000
# Peaks of Adam's cycle. Exact labels bear a high one (airfoil drag, mean R² of 16 derivatives:
# 0.91, 0.95, 0.95 at 0.01, 0.02, 0.03), noisy ones do not (basket of 20, error of the value: 0.149,
# 0.162, 0.180), and 0.1, the published one, ends one run in four as a constant.
EXACT_PEAK, NOISY_PEAK = 0.03, 0.01
# Passes over the rows. Exact labels pay for more (airfoil drag, smallest R² of 16 derivatives:
# 0.84, 0.86, 0.89 after 100, 200, 300), noisy ones are followed too closely (basket of 50, error of
# the value: 0.059, 0.067 after 100, 200).
EXACT_EPOCHS, EPOCHS = 300, 50
# Adam's decay where labels are noisy, or may be, for each input, and the most: it keeps the fit
# from following the noise, and more inputs leave more to follow. Error of the value without decay
# and with: 1 asset 0.029, 0.032; basket of 7 0.073, 0.071; of 20 0.138, 0.079; of 50 0.059, 0.030.
NOISY_DECAY, MOST_DECAY = 0.01, 0.3
# Up to this many weights a dense quasi-Newton matrix is kept: 72 MB. (Rosenbrock, 389 rows, 921
# weights: a loss of 3e-7 after 4,000 iterations of L-BFGS, of 1e-14 after 2,000 with the matrix.)
MOST_DENSE = 3_000
# A full batch's decay where rows are so far apart that their labels leave open what lies between:
# of all networks that fit, one with small weights. (4 points of x sin x: R² of 0.99 for every
# seed, and 0.58 to 0.99 without.) Nearer rows settle it themselves, and any decay costs accuracy.
SPARSE_DECAY = 1e-5


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        optimizer: "adam", or one of the full batch, "broyden" or "lbfgs".
        epochs: passes over the data for Adam, iterations for a full batch.
        batch_size: rows a step; all of them for a full batch.
        learning_rate: peak of Adam's cycle.
        weight_decay: decoupled for Adam; a factor on half the squared weights for a full batch.
        reason: why, in a sentence.
    """

    optimizer: str
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    reason: str


def choose_recipe(
    data: DifferentialData,
    weights: int,
    *,
    optimizer: str = "auto",
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
) -> Recipe:
    """Fill in what the user left open.

    Args:
        data: standardised training rows.
        weights: how many the network has.
        optimizer: "auto", "adam", "broyden" or "lbfgs".
        epochs: None chooses.
        batch_size: None chooses.
        learning_rate: None chooses; a full batch has none.
        weight_decay: None chooses.

    Raises:
        InputError: an unknown optimizer, or a number out of range.
    """
    if optimizer not in OPTIMIZERS:
        *most, last = map(repr, OPTIMIZERS)
        raise InputError(f"optimizer: expected {', '.join(most)} or {last}, got {optimizer!r}")
    for name, value in (
        ("epochs", epochs),
        ("batch_size", batch_size),
        ("learning_rate", learning_rate),
    ):
        if value is not None and not value > 0:
            raise InputError(f"{name}: expected a number above 0, got {value}")
    noise = _noise(data)
    reason = f"{optimizer}: asked for"
    if optimizer == "auto":
        optimizer, reason = _choose(data, weights, noise)
    exact = noise.known and not noise.present
    rows = len(data)
    if optimizer in FULL_BATCH:
        decay = SPARSE_DECAY if exact and noise.large else 0.0
        return Recipe(optimizer, epochs or 4_000, rows, 1.0, _or(weight_decay, decay), reason)
    noisy_decay = min(MOST_DECAY, NOISY_DECAY * data.x.shape[1])
    batch = min(rows, batch_size or max(256, rows // 32))
    per_epoch = max(1, round(rows / batch))
    return Recipe(
        optimizer="adam",
        epochs=epochs or max(EXACT_EPOCHS if exact else EPOCHS, -(-STEPS // per_epoch)),
        batch_size=batch,
        learning_rate=learning_rate or (EXACT_PEAK if exact else NOISY_PEAK),
        weight_decay=_or(weight_decay, 0.0 if exact else noisy_decay),
        reason=reason,
    )


def _or(given: float | None, chosen: float) -> float:
    return chosen if given is None else given


def _noise(data: DifferentialData) -> Noise:
    if data.dydx is None:
        return Noise(nan, nan, nan)
    return measure_noise(data.x, data.y, data.dydx)


def _choose(data: DifferentialData, weights: int, noise: Noise) -> tuple[str, str]:
    rows, numbers = len(data), len(data) * data.x.shape[1] * data.y.shape[1]
    if rows > FEW_ROWS or numbers > FEW_NUMBERS:
        return "adam", f"adam: {rows} rows are too many for full batches"
    if data.dydx is None:
        return "adam", "adam: without derivatives, noise in the values can't be told from curvature"
    if not noise.known:
        return "adam", "adam: no two neighbours have known derivatives, to tell noise by"
    if noise.present:
        return "adam", (
            f"adam: between neighbours, values differ from what their derivatives say by "
            f"{noise.value:.0%} of their spread, and by about as much far apart: the labels are "
            "noisy, and full batches would fit the noise"
        )
    name = "broyden" if weights <= MOST_DENSE else "lbfgs"
    return name, (
        f"{name}: {rows} rows whose values and derivatives agree between neighbours, the better "
        "the nearer: few and without noise"
    )
