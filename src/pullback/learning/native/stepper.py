"""Adam on small networks without Python between steps."""

from dataclasses import dataclass
from typing import Any

import torch

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.native.kernel import Kernel
from pullback.learning.networks import Twin
from pullback.learning.optimizers import Terms, one_cycle


@dataclass
class NativeAdamStepper:
    """`AdamStepper` in compiled code: the same steps to rounding, for small networks on a CPU.

    Args: as `AdamStepper`'s.
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
        self.kernel = Kernel(self.twin, self.loss, self.data)
        self.batches = max(1, round(len(self.data) / self.batch_size))
        bounds = torch.linspace(0, len(self.data), self.batches + 1, dtype=torch.float64)
        self.bounds = bounds.round().long()
        self.first = torch.zeros_like(self.kernel.flat)
        self.second = torch.zeros_like(self.kernel.flat)

    def run_epoch(self) -> Terms:
        """One pass over the shuffled rows."""
        order = torch.randperm(len(self.data), generator=self.generator)
        step, steps = self.epoch * self.batches, self.epochs * self.batches
        rates = [one_cycle(step + i, steps, self.peak) for i in range(self.batches)]
        value, derivative = self.kernel.epoch(
            order, self.bounds, torch.tensor(rates, dtype=torch.float64), self.weight_decay, step,
            self.first, self.second,
        )  # fmt: skip
        self.epoch += 1
        self.learning_rate = rates[-1]
        terms = {"value": value / self.batches}
        if self.data.dydx is not None:
            terms["derivative"] = derivative / self.batches
        return {**terms, "total": sum(terms.values())}

    def state(self) -> dict[str, Any]:
        """Moments, the shuffles' random stream, and how far it has come."""
        return {
            "epoch": self.epoch,
            "moments": [self.first, self.second],
            "generator": self.generator.get_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.epoch = state["epoch"]
        self.first, self.second = (moment.clone() for moment in state["moments"])
        self.generator.set_state(state["generator"])
