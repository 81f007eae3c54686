"""Train a network on values and derivatives: one readable loop."""

import copy
import math
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pullback._state import thread_count
from pullback.errors import GradientError, ModelFileError, PullbackWarning
from pullback.learning.data import DifferentialData
from pullback.learning.history import History
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.optimizers import Stepper, Terms, loss_terms
from pullback.learning.progress import progress_bar
from pullback.learning.tensor_tree import clone_state, read_folder, write_folder

CHECKPOINT_FORMAT = 1

# Rows a validation pass holds at once: enough to be quick, little enough for any memory.
_CHUNK = 16_384


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often the state of a run is written, so that it can be taken up again.

    Attributes:
        folder: written whole or not at all.
        fingerprint: of data and hyper-parameters; a run continues only a checkpoint of its own.
        every: seconds between two writes; 0 writes after every epoch.
    """

    folder: Path
    fingerprint: str
    every: float = 30.0


@dataclass
class _Best:
    """The best weights met on held-out rows."""

    score: float = math.inf
    epoch: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, score: float, epoch: int, twin: Twin) -> None:
        if score < self.score:
            self.score, self.epoch, self.weights = score, epoch, clone_state(twin)


def fit(
    twin: Twin,
    loss: DifferentialLoss,
    stepper: Stepper,
    history: History,
    *,
    validation: DifferentialData | None = None,
    patience: int | None = None,
    checkpoint: Checkpoint | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> History:
    """Run `stepper` to its end; `twin` is left with the best weights.

    Weights are chosen by the total loss over `validation`; without it the last ones are kept.
    Ctrl-C ends the run with what it has, and says so.

    Args:
        twin: the network, changed in place.
        loss: what is minimised.
        stepper: the optimizer at work, from `pullback.learning.optimizers`.
        history: appended to.
        validation: held-out rows, standardised like the training rows.
        patience: epochs without improvement on `validation` after which to stop; None never stops.
        checkpoint: where to write the state; one that is there already is continued from.
        threads: intra-op threads while training; None leaves them alone.
        progress: show a bar; None shows it on a terminal.

    Raises:
        GradientError: the loss is not finite.
        ModelFileError: the checkpoint is corrupt, or belongs to another run.
    """
    best = _Best()
    log = _Log(checkpoint, twin, stepper, history, best) if checkpoint else None
    started = time.perf_counter() - history.seconds
    with thread_count(threads), progress_bar(progress, history.optimizer) as report:
        try:
            while stepper.epoch < stepper.epochs and not _stale(best, stepper, patience):
                terms = _run_epoch(stepper)
                held_out = _evaluate(twin, loss, validation)
                history.record(stepper.epoch, stepper.learning_rate, terms, held_out)
                history.seconds = time.perf_counter() - started
                report(stepper.epoch, stepper.epochs, terms)
                if held_out is not None:
                    best.offer(held_out["total"], stepper.epoch, twin)
                if log:
                    log.note()
            if stepper.epoch < stepper.epochs:
                history.events.append(
                    f"stopped early at epoch {stepper.epoch}: no better on held-out rows "
                    f"since epoch {best.epoch}"
                )
        except KeyboardInterrupt:
            _interrupted(history, stepper, kept="the best" if best.weights else "the last")
    if log:
        log.write()
    if best.weights:
        twin.load_state_dict(best.weights)
        history.best_epoch = best.epoch
    return history


def _stale(best: _Best, stepper: Stepper, patience: int | None) -> bool:
    return patience is not None and bool(best.weights) and stepper.epoch - best.epoch >= patience


def _run_epoch(stepper: Stepper) -> Terms:
    terms = stepper.run_epoch()
    if not math.isfinite(terms["total"]):
        raise GradientError(
            f"fit: the loss is {terms['total']} after epoch {stepper.epoch}. Lower the learning "
            "rate, or look for labels far out of range."
        )
    return terms


def _evaluate(
    twin: Twin, loss: DifferentialLoss, validation: DifferentialData | None
) -> Terms | None:
    """Mean loss terms over held-out rows, in chunks."""
    if validation is None:
        return None
    sums: Terms = {}
    with torch.no_grad():
        for start in range(0, len(validation), _CHUNK):
            chunk = validation.take(slice(start, start + _CHUNK))
            for name, term in loss_terms(twin, loss, chunk).items():
                sums[name] = sums.get(name, 0.0) + float(term) * len(chunk) / len(validation)
    return {**sums, "total": sum(sums.values())}


def _interrupted(history: History, stepper: Stepper, *, kept: str) -> None:
    history.interrupted = True
    history.events.append(
        f"interrupted after epoch {stepper.epoch} of {stepper.epochs}: {kept} weights so far kept"
    )
    warnings.warn(f"fit: {history.events[-1]}", PullbackWarning, stacklevel=3)


class _Log:
    """Keeps the state after the last whole epoch, and writes it from time to time.

    A copy, because an interruption may come in the middle of an epoch, from where no exact
    continuation is possible.
    """

    def __init__(
        self, where: Checkpoint, twin: Twin, stepper: Stepper, history: History, best: _Best
    ) -> None:
        self.where, self.twin, self.stepper = where, twin, stepper
        self.history, self.best = history, best
        self.written = time.perf_counter()
        self.state: dict[str, Any] | None = None
        if where.folder.exists():
            self._resume()

    def note(self) -> None:
        """Take down the state; write it if the last time was long ago."""
        self.state = {
            "weights": clone_state(self.twin),
            "stepper": copy.deepcopy(self.stepper.state()),
            "best": dict(vars(self.best)),
            "history": copy.deepcopy(self.history.to_json()),
        }
        if time.perf_counter() - self.written >= self.where.every:
            self.write()

    def write(self) -> None:
        """Write what was last noted."""
        if self.state is not None:
            config = {"kind": "checkpoint", "format": CHECKPOINT_FORMAT,
                      "fingerprint": self.where.fingerprint}  # fmt: skip
            write_folder(self.where.folder, config, self.state)
            self.written = time.perf_counter()

    def _resume(self) -> None:
        folder = self.where.folder
        config, state = read_folder(folder, kind="checkpoint", version=CHECKPOINT_FORMAT)
        if config.get("fingerprint") != self.where.fingerprint:
            raise ModelFileError(
                f"{folder}: this checkpoint belongs to a run with other data or hyper-parameters. "
                "Remove the folder, or name another."
            )
        self.twin.load_state_dict(state["weights"])
        self.stepper.load_state(state["stepper"])
        vars(self.best).update(state["best"])
        vars(self.history).update(state["history"])
        self.history.interrupted = False
        self.history.events.append(f"resumed after epoch {self.stepper.epoch}")
