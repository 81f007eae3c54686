"""From checked labels to a trained surrogate: split, scale, choose, train, restart on collapse."""

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pullback._state import devices_of, kept_rng
from pullback.errors import CollapseWarning, GradientError, InputError
from pullback.learning.collapse import is_collapsed, is_diverged
from pullback.learning.data import DifferentialData
from pullback.learning.fit import Checkpoint, fit
from pullback.learning.full_batch import FullBatchStepper
from pullback.learning.history import History
from pullback.learning.loss import FLOOR, DifferentialLoss
from pullback.learning.native.build import why_not
from pullback.learning.native.kernel import is_possible
from pullback.learning.native.stepper import NativeAdamStepper
from pullback.learning.networks import Twin
from pullback.learning.optimizers import AdamStepper, Stepper
from pullback.learning.recipe import FULL_BATCH, Recipe, choose_recipe
from pullback.learning.scaling import Scaling
from pullback.learning.surrogate import Surrogate

# Below this many multiplications a step, a second thread costs more than it does.
_ONE_THREAD = 100_000_000

MakeNetwork = Callable[[torch.Generator, torch.dtype], Twin]


@dataclass(frozen=True)
class Options:
    """What a user may set; None lets the data decide. See `DifferentialRegressor`."""

    optimizer: str = "auto"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    derivative_weight: float = 1.0
    derivative_floor: float = FLOOR
    second_order_weight: float = 1.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int | None = None
    restarts: int = 2
    seed: int = 0
    dtype: torch.dtype | None = None
    device: torch.device | str | None = None
    progress: bool | None = None
    checkpoint: Path | None = None

    def __post_init__(self) -> None:
        for name in ("weight_decay", "derivative_weight", "derivative_floor",
                     "second_order_weight", "restarts"):  # fmt: skip
            value = getattr(self, name)
            if not (value is None or value >= 0):
                raise InputError(f"{name}: expected at least 0, got {value}")
        if self.patience is not None and not self.patience > 0:
            raise InputError(f"patience: expected a number above 0, got {self.patience}")
        if not 0 < self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction: expected between 0 and 1, got {self.validation_fraction}"
            )


def train(
    make_network: MakeNetwork,
    data: DifferentialData,
    options: Options,
    validation: DifferentialData | None = None,
) -> tuple[Surrogate, History]:
    """Train a network on labels in the user's units.

    Args:
        make_network: a fresh network from a generator and a dtype, on the CPU.
        data: training rows, float64 on the CPU.
        options: how.
        validation: held-out rows; with `early_stopping` and none given, some are split off.

    Returns:
        The surrogate, and what happened.

    Raises:
        GradientError: the loss is not finite, in every try.
    """
    if options.derivative_weight == 0:
        data = _without_derivatives(data)
        validation = None if validation is None else _without_derivatives(validation)
    if validation is None and options.early_stopping:
        data, validation = _split(data, options)
    scaling = Scaling.from_data(data)
    scaled = scaling.scale(data)
    recipe = choose_recipe(
        scaled, _size(make_network), optimizer=options.optimizer, epochs=options.epochs,
        batch_size=options.batch_size, learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
    )  # fmt: skip
    # Full batches go far below float32's rounding; Adam's steps are noisier than it.
    default = torch.float64 if recipe.optimizer in FULL_BATCH else torch.float32
    place = _Place(options.dtype or default, options.device)
    loss = DifferentialLoss.of(
        scaled, options.derivative_weight, options.derivative_floor, options.second_order_weight
    ).to(place.dtype, place.device)
    held_out = None if validation is None else scaling.scale(validation).map(place)
    placed = scaled.map(place)
    # The dropout of a user's module draws from the global stream, which is the caller's.
    with kept_rng(*devices_of(placed.x)):
        twin, history = _with_restarts(make_network, loss, placed, held_out, recipe, options, place)
    return Surrogate(twin.eval(), scaling, data.y.shape[1]), history


def _size(make_network: MakeNetwork) -> int:
    # The networks that are trained warn for themselves.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = make_network(torch.Generator(), torch.float32)
    return sum(p.numel() for p in twin.parameters() if p.requires_grad)


def _without_derivatives(data: DifferentialData) -> DifferentialData:
    return replace(data, dydx=None, dydx_weight=None, dydv=None)


@dataclass(frozen=True)
class _Place:
    dtype: torch.dtype
    device: torch.device | str | None

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.to(dtype=self.dtype, device=self.device)


def _with_restarts(
    make_network: MakeNetwork,
    loss: DifferentialLoss,
    data: DifferentialData,
    held_out: DifferentialData | None,
    recipe: Recipe,
    options: Options,
    place: _Place,
) -> tuple[Twin, History]:
    """Train; if the result is a constant or not finite, again, new weights, half the rate."""
    tries: list[tuple[float, Twin, History, int]] = []
    told = [recipe.reason]
    if why_not():
        told.append(f"the compiled step is not there, torch's operations were used: {why_not()}")
    for attempt in range(options.restarts + 1):
        slower = replace(recipe, learning_rate=recipe.learning_rate / 2**attempt)
        history = History(recipe.optimizer, events=list(told))
        seed = options.seed + 1_000_003 * attempt
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        twin = make_network(generator, place.dtype).to(place.device)
        stepper = _stepper(twin, loss, data, slower, options, generator)
        try:
            fit(
                twin, loss, stepper, history, validation=held_out,
                patience=_patience(options, recipe), progress=options.progress,
                checkpoint=_checkpoint(options, (data, held_out), twin, attempt),
                threads=_threads(twin, recipe),
            )  # fmt: skip
        except GradientError:
            if attempt == options.restarts:
                raise
            trouble = "the loss became infinite"
        else:
            # Interrupted in its first epoch, a run has no loss yet.
            reached = history.train.get("total", [math.inf])[-1]
            tries.append((reached, twin, history, len(told)))
            trouble = "" if history.interrupted else _trouble(twin, loss, data, history, reached)
            if not trouble:
                # Kept even where a constant had the lower loss: it learns.
                tries = tries[-1:]
                break
        told.append(_tell(trouble, attempt, options.restarts))
    _, twin, history, before = min(tries, key=lambda one: one[0])
    history.events[:before] = told
    return twin, history


def _trouble(
    twin: Twin, loss: DifferentialLoss, data: DifferentialData, history: History, reached: float
) -> str:
    lowest = min(history.train.get("total", [reached]))
    # A short run that is still on its way down has not diverged, however high it stands.
    if reached > 1.1 * lowest and is_diverged(loss, data, reached):
        return "training diverged"
    return "training ended as a constant" if is_collapsed(twin, data) else ""


def _tell(trouble: str, attempt: int, restarts: int) -> str:
    if attempt < restarts:
        what = f"{trouble}; restarted from new weights at half the learning rate"
    else:
        tried = f"in {restarts + 1} tries; the best is kept" if restarts else "and is kept"
        what = f"{trouble} {tried}. Lower learning_rate"
    warnings.warn(f"fit: {what}", CollapseWarning, stacklevel=5)
    return what


def _stepper(
    twin: Twin,
    loss: DifferentialLoss,
    data: DifferentialData,
    recipe: Recipe,
    options: Options,
    generator: torch.Generator,
) -> Stepper:
    if recipe.optimizer in FULL_BATCH:
        return FullBatchStepper(
            recipe.optimizer, twin, loss, data, recipe.epochs, recipe.weight_decay
        )
    adam = NativeAdamStepper if is_possible(twin, data) else AdamStepper
    return adam(
        twin, loss, data, recipe.epochs, recipe.batch_size, recipe.learning_rate,
        recipe.weight_decay, generator,
    )  # fmt: skip


def _split(data: DifferentialData, options: Options) -> tuple[DifferentialData, DifferentialData]:
    if len(data) < 2:
        raise InputError("early_stopping: expected at least 2 rows, to hold one out, got 1")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(options.seed))
    held = min(len(data) - 1, max(1, round(options.validation_fraction * len(data))))
    return data.take(order[held:]), data.take(order[:held])


def _patience(options: Options, recipe: Recipe) -> int | None:
    if not options.early_stopping:
        return None
    # The one-cycle schedule gains most at its end: a short patience would stop it at its peak.
    return options.patience or max(10, recipe.epochs // 4)


def _threads(twin: Twin, recipe: Recipe) -> int | None:
    work = recipe.batch_size * sum(p.numel() for p in twin.parameters())
    return 1 if work < _ONE_THREAD else None


def _checkpoint(
    options: Options, parts: tuple[DifferentialData | None, ...], twin: Twin, attempt: int
) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    digest = hashlib.sha256()
    free = replace(options, progress=None, checkpoint=None, device=None)
    digest.update(repr((free, attempt, twin)).encode())
    for part in parts:
        for name, tensor in ({} if part is None else vars(part)).items():
            if tensor is not None:
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    folder = options.checkpoint
    return Checkpoint(
        folder if attempt == 0 else folder.with_name(f"{folder.name}-{attempt}"), digest.hexdigest()
    )
