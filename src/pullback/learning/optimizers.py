"""What a training run takes its steps with: the protocol, and mini-batch Adam on a one-cycle.

A stepper does one epoch at a time and can put its state down and take it up again, exactly.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import cos, pi
from typing import Any, Protocol

import torch
from torch import Tensor

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin

Terms = dict[str, float]


def loss_terms(twin: Twin, loss: DifferentialLoss, batch: DifferentialData) -> dict[str, Tensor]:
    """The terms of the loss on a batch, computing no more derivatives than it has labels for."""
    jacobian = hvp = along = None
    if batch.hvp is not None and batch.directions is not None:
        y, jacobian, hvp = twin.value_jacobian_and_hvp(batch.x, batch.directions)
    elif batch.dydx is not None or batch.dydv is not None:
        y, jacobian = twin(batch.x)
    else:
        y = twin.module(batch.x)
    if batch.dydv is not None and batch.directions is not None and jacobian is not None:
        along = torch.einsum("nkd,nd->nk", jacobian, batch.directions)
    return loss.terms(
        y, batch.y, jacobian, batch.dydx, dydv_hat=along, dydv=batch.dydv, hvp_hat=hvp,
        hvp=batch.hvp, sample_weight=batch.sample_weight, dydx_weight=batch.dydx_weight,
    )  # fmt: skip


def one_cycle(step: int, steps: int, peak: float) -> float:
    """Learning rate at a step: a cosine up over the first quarter, then down to zero.

    Smith & Topin 2018 (arXiv 1708.07120), the shape of `torch.optim.lr_scheduler.OneCycleLR`.
    Written as a function of the step so that a resumed run needs no scheduler state.

    >>> [round(one_cycle(step, 100, 1.0), 3) for step in (0, 25, 99)]
    [0.04, 1.0, 0.0]
    """
    warm = max(1, round(0.25 * steps))
    if step < warm:
        return peak * (0.04 + 0.96 * 0.5 * (1.0 - cos(pi * step / warm)))
    return peak * (1e-5 + 0.5 * (1.0 + cos(pi * (step - warm + 1) / max(1, steps - warm))))


class Stepper(Protocol):
    """One optimizer at work on one network and one training set."""

    epoch: int
    epochs: int
    learning_rate: float

    def run_epoch(self) -> Terms:
        """Go on by one epoch; the mean terms of the loss met on the way."""

    def state(self) -> dict[str, Any]:
        """All that an exact continuation needs, but for weights and data."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""


@dataclass
class AdamStepper:
    """Mini-batch Adam; rows are shuffled each epoch by one gather.

    Args:
        twin: the network, with its derivative.
        loss: what is minimised.
        data: standardised training rows.
        epochs: passes over the data.
        batch_size: rows a step.
        peak: the highest learning rate of the cycle.
        weight_decay: decoupled, as in AdamW.
        generator: of the shuffles, on the CPU.
    """

    twin: Twin
    loss: DifferentialLoss
    data: DifferentialData
    epochs: int
    batch_size: int
    peak: float
    weight_decay: float
    generator: torch.Generator
    epoch: int = 0
    learning_rate: float = 0.0

    def __post_init__(self) -> None:
        parameters = [p for p in self.twin.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=self.peak, weight_decay=self.weight_decay, fused=True
        )

    @property
    def batches(self) -> int:
        """Steps an epoch."""
        return max(1, round(len(self.data) / self.batch_size))

    @property
    def bounds(self) -> Tensor:
        """First rows of the batches, and the number of rows.

        Batches are equal to within one row: a short last batch would weigh its rows more.
        """
        steps = torch.arange(self.batches + 1, dtype=torch.float64)
        return (steps * (len(self.data) / self.batches)).round().long()

    def run_epoch(self) -> Terms:
        """One pass over the shuffled rows."""
        seen: dict[str, Tensor] = {}
        order = self.shuffle()
        shuffled = self.data.take(order.to(self.data.x.device))
        batches = pairwise(self.bounds.tolist())
        for rate, (start, stop) in zip(self.rates(), batches, strict=True):
            self._set_rate(rate)
            self.optimizer.zero_grad(set_to_none=True)
            terms = loss_terms(self.twin, self.loss, shuffled.take(slice(start, stop)))
            torch.stack(list(terms.values())).sum().backward()
            self.optimizer.step()
            for name, term in terms.items():
                seen[name] = seen.get(name, 0.0) + term.detach()
        self.epoch += 1
        return with_total({name: float(term) / self.batches for name, term in seen.items()})

    def shuffle(self) -> Tensor:
        """The order of rows in the coming epoch."""
        return torch.randperm(len(self.data), generator=self.generator)

    def rates(self) -> list[float]:
        """Learning rates of the coming epoch's steps."""
        first, steps = self.epoch * self.batches, self.epochs * self.batches
        return [one_cycle(first + i, steps, self.peak) for i in range(self.batches)]

    def _set_rate(self, rate: float) -> None:
        self.learning_rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state(self) -> dict[str, Any]:
        """Moments, the shuffles' random stream, and how far it has come."""
        return {
            "epoch": self.epoch,
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.epoch = state["epoch"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())


def with_total(terms: Terms) -> Terms:
    """The terms and their sum."""
    return {**terms, "total": sum(terms.values())}
