"""Adam on small networks without Python between steps."""

from typing import Any

import torch

from pullback.learning.native.kernel import Kernel
from pullback.learning.optimizers import AdamStepper, Terms, with_total


class NativeAdamStepper(AdamStepper):
    """`AdamStepper` in compiled code: the same steps to rounding, for small networks on a CPU."""

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.twin, self.loss, self.data)
        self.first = torch.zeros_like(self.kernel.flat)
        self.second = torch.zeros_like(self.kernel.flat)

    def run_epoch(self) -> Terms:
        """One pass over the shuffled rows."""
        rates = self.rates()
        value, derivative = self.kernel.epoch(
            self.shuffle(), self.bounds, torch.tensor(rates, dtype=torch.float64),
            self.weight_decay, self.epoch * self.batches, self.first, self.second,
        )  # fmt: skip
        self.epoch += 1
        self.learning_rate = rates[-1]
        terms = {"value": value / self.batches}
        if self.data.dydx is not None:
            terms["derivative"] = derivative / self.batches
        return with_total(terms)

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
