"""All rows in every step, for few rows without noise: quasi-Newton descent on one flat vector."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.native.kernel import Kernel, is_possible
from pullback.learning.networks import Twin
from pullback.learning.optimizers import Terms, loss_terms, with_total
from pullback.learning.quasi_newton import LEAST_GAIN, Objective, SelfScaledBroyden

# Iterations between two looks at the validation rows, the clock and the keyboard.
ITERATIONS_A_LOOK = 20
# A loss this small ends the run: errors are a ten-millionth of the labels' spread.
ENOUGH = 1e-14


class FullBatchLoss:
    """The loss over all rows, and its gradient, as a function of all weights in one vector [P].

    Weights of the network become views of the vector `weights`.

    Args:
        twin: the network, with its derivative.
        loss: what is minimised.
        data: standardised training rows.
        weight_decay: factor on half the squared weights, added to the loss. Biases are left out:
            shifting an activation costs nothing.
    """

    def __init__(
        self, twin: Twin, loss: DifferentialLoss, data: DifferentialData, weight_decay: float
    ) -> None:
        self._twin, self._loss, self._data = twin, loss, data
        self._parameters = [p for p in twin.parameters() if p.requires_grad]
        self.kernel: Kernel | None = None
        if is_possible(twin, data):
            self.kernel = Kernel(twin, loss, data)
            self._rows = torch.arange(len(data))
            self.weights = self.kernel.flat
        else:
            self.weights = parameters_to_vector(self._parameters).detach()
            vector_to_parameters(self.weights, self._parameters)
        self._decay = weight_decay * torch.cat(
            [torch.full_like(p.detach(), float(p.ndim > 1)).flatten() for p in self._parameters]
        )

    def __call__(self, weights: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient at `weights`, which the network is left with."""
        self.weights.copy_(weights)
        total, gradient = self._by_kernel() if self.kernel else self._by_autograd()
        pull = self._decay * weights
        return total + 0.5 * float(pull @ weights), gradient.add_(pull)

    def _by_kernel(self) -> tuple[float, Tensor]:
        gradient, value, derivative = self.kernel.gradient(self._rows)  # type: ignore[union-attr]
        return value + derivative, gradient

    def _by_autograd(self) -> tuple[float, Tensor]:
        total = torch.stack(list(loss_terms(self._twin, self._loss, self._data).values())).sum()
        parts = torch.autograd.grad(total, self._parameters, materialize_grads=True)
        return float(total.detach()), parameters_to_vector(parts)

    @torch.no_grad()
    def terms(self) -> Terms:
        """The terms of the loss, without decay, at the network's weights."""
        terms = loss_terms(self._twin, self._loss, self._data)
        return with_total({name: float(term) for name, term in terms.items()})


class _Method(Protocol):
    weights: Tensor

    def advance(self, iterations: int) -> bool:
        """Go down; False where there is no way down."""

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


class LimitedMemory:
    """L-BFGS, torch's own, for networks too large for a dense matrix.

    Args:
        objective: what is minimised.
        weights: where to start, [P].
    """

    def __init__(self, objective: Objective, weights: Tensor) -> None:
        self._objective = objective
        self.weights = weights.clone()
        self._moving = nn.Parameter(weights.clone())
        self._optimizer = torch.optim.LBFGS(
            [self._moving],
            history_size=50,
            tolerance_grad=1e-12,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

    def advance(self, iterations: int) -> bool:
        """Go down; False where that gains nothing. Interrupted, `weights` are where it began."""
        self._optimizer.param_groups[0].update(max_iter=iterations, max_eval=10 * iterations)
        before = float(self._optimizer.step(self._closure))
        self.weights = self._moving.detach().clone()
        return before - self._objective(self.weights)[0] > LEAST_GAIN * before

    def _closure(self) -> float:
        loss, self._moving.grad = self._objective(self._moving.detach())
        return loss

    def state(self) -> dict[str, Any]:
        """The curvature history."""
        return {"weights": self.weights, "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.weights = state["weights"].clone()
        self._moving.data.copy_(self.weights)
        self._optimizer.load_state_dict(state["optimizer"])


METHODS: dict[str, type[SelfScaledBroyden] | type[LimitedMemory]] = {
    "broyden": SelfScaledBroyden,
    "lbfgs": LimitedMemory,
}


class FullBatchStepper:
    """One of `METHODS` at work; an epoch is a few iterations.

    Args:
        method: its name.
        twin: the network, with its derivative.
        loss: what is minimised.
        data: standardised training rows.
        epochs: iterations.
        weight_decay: factor on half the squared weights, added to the loss.
    """

    def __init__(
        self,
        method: str,
        twin: Twin,
        loss: DifferentialLoss,
        data: DifferentialData,
        epochs: int,
        weight_decay: float,
    ) -> None:
        self.twin, self.loss = twin, loss
        self.epoch, self.epochs = 0, epochs
        self.learning_rate = 1.0
        self.objective = FullBatchLoss(twin, loss, data, weight_decay)
        self.method: _Method = METHODS[method](self.objective, self.objective.weights)

    def run_epoch(self) -> Terms:
        """A few iterations; ends the run when they bring nothing more."""
        iterations = min(ITERATIONS_A_LOOK, self.epochs - self.epoch)
        try:
            going = self.method.advance(iterations)
        finally:
            # Ctrl-C comes at a trial point of the line search, which may be far off.
            self.objective.weights.copy_(self.method.weights)
        self.epoch += iterations
        terms = self.objective.terms()
        if not going or terms["total"] <= ENOUGH:
            self.epochs = self.epoch
        return terms

    def state(self) -> dict[str, Any]:
        """The curvature met so far, and how far it has come."""
        return {"epoch": self.epoch, "epochs": self.epochs, "method": self.method.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.epoch, self.epochs = state["epoch"], state["epochs"]
        self.method.load_state(state["method"])
