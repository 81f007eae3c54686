"""Full-batch descent for few exact rows: a self-scaled Broyden method with a dense matrix.

NOTE [Self-scaled Broyden]
A quasi-Newton method keeps H, an estimate of the inverse Hessian, steps along d = -H g, and mends H
by what the gradient did on the way. With s the step, y the change of the gradient, and
B = H⁻¹, so that B s = -t g for a step of length t,

    b = sᵀBs / sᵀy,    h = yᵀHy / sᵀy,    a = h b - 1 ≥ 0,

    H⁺ = [H - Hy (Hy)ᵀ / yᵀHy + φ v vᵀ] / τ + s sᵀ / sᵀy,    v = √(yᵀHy) (s / sᵀy - Hy / yᵀHy).

τ = φ = 1 is BFGS. Training a network goes through long valleys in which H's large eigenvalues are
far too large; τ < 1 and φ < 1 correct them as they are met, where BFGS (and L-BFGS more so) needs
many iterations. With n weights,

    ρ = min(1, h (1 - √(a / (a + 1)))),    θ = max((ρ - 1) / a, min(1 / ρ, (1 - b) / b)),
    σ = 1 + a θ,    φ = (1 - θ) / σ,    c = σ^(-1/(n-1)),
    τ = min(1, 1/b) min(c, 1/θ) if θ > 0, otherwise min(min(1, 1/b) c, σ).

Sources: Al-Baali & Khalfan, A combined class of self-scaling and modified quasi-Newton methods,
Comput. Optim. Appl. 52, 2012; Urbán, Stefanou & Pons, J. Comput. Phys. 523, 2025
(arXiv 2405.04230), who found it far ahead of BFGS for physics-informed networks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor

# A step is long enough when the loss falls by this share of what its slope promises, and the slope
# itself by a tenth: Nocedal & Wright, Numerical Optimization, 2006, (3.6).
ARMIJO, CURVATURE = 1e-4, 0.9
TRIALS = 30
# Iterations that gain a smaller share of the loss than this, together, are the end.
LEAST_GAIN = 1e-9

Objective = Callable[[Tensor], tuple[float, Tensor]]
"""Loss and its gradient [P], at weights [P]."""


@dataclass(frozen=True)
class Point:
    """Weights [P], and the loss and its gradient there."""

    weights: Tensor
    loss: float
    gradient: Tensor


class SelfScaledBroyden:
    """Descent with a dense estimate of the inverse Hessian; see NOTE [Self-scaled Broyden].

    Memory is P² numbers, and an iteration costs O(P²) beside the loss's gradient.

    Args:
        objective: what is minimised.
        weights: where to start, [P].

    >>> def bowl(w):
    ...     return float(w @ w), 2 * w
    >>> method = SelfScaledBroyden(bowl, torch.tensor([3.0, 4.0], dtype=torch.float64))
    >>> method.advance(20)
    False
    >>> method.weights.tolist()
    [0.0, 0.0]
    """

    def __init__(self, objective: Objective, weights: Tensor) -> None:
        self._objective = objective
        self.weights = weights.clone()
        # Both are None until they are known; without H, a step goes straight down.
        self._point: Point | None = None
        self._inverse: Tensor | None = None

    def advance(self, iterations: int) -> bool:
        """Go down; False, at the end, where there is no way down or the way gains nothing.

        Interrupted, `weights` are those of the last finished iteration.
        """
        point = self._at(self.weights) if self._point is None else self._point
        before = point.loss
        for _ in range(iterations):
            after = self._step(point)
            if after is None and self._inverse is None:
                return False
            if after is None:
                # Rounding has spoilt the estimate: begin a new one.
                self._inverse = None
            else:
                point = self._point = after
                self.weights = after.weights
        return before - point.loss > LEAST_GAIN * before

    def _step(self, old: Point) -> Point | None:
        direction = -old.gradient if self._inverse is None else -(self._inverse @ old.gradient)
        slope = float(old.gradient @ direction)
        # Straight down, nothing says yet how far.
        length = 1.0 / max(1.0, float(old.gradient.abs().sum())) if self._inverse is None else 1.0
        found = self._search(old, direction, slope, length) if slope < 0 else None
        if found is None:
            return None
        new, length = found
        self._learn(length * direction, new.gradient - old.gradient, -(length**2) * slope)
        return new

    def _learn(self, step: Tensor, change: Tensor, s_b_s: float) -> None:
        along = float(step @ change)
        # Not so where rounding decides: H would lose its positive eigenvalues.
        if not along > 0:
            return
        if self._inverse is None:
            scale = along / float(change @ change)
            self._inverse = scale * torch.eye(len(step), dtype=step.dtype, device=step.device)
            s_b_s = float(step @ step) / scale
        _update(self._inverse, step, change, along, s_b_s)

    def _search(
        self, old: Point, direction: Tensor, slope: float, length: float
    ) -> tuple[Point, float] | None:
        """The first point met that satisfies the weak Wolfe conditions, by doubling and halving."""
        low, high, kept = 0.0, inf, None
        for _ in range(TRIALS):
            trial = self._at(old.weights + length * direction)
            # Written so that a NaN is too far.
            if not trial.loss <= old.loss + ARMIJO * length * slope:
                high = length
            elif float(trial.gradient @ direction) < CURVATURE * slope:
                low, kept = length, (trial, length)
            else:
                return trial, length
            length = 2.0 * low if high == inf else 0.5 * (low + high)
        return kept

    def _at(self, weights: Tensor) -> Point:
        return Point(weights, *self._objective(weights))

    def state(self) -> dict[str, Any]:
        """All that an exact continuation needs, but for the objective."""
        point = {} if self._point is None else vars(self._point)
        return {"weights": self.weights, "inverse": self._inverse, "point": point}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.weights, self._inverse = state["weights"], state["inverse"]
        self._point = Point(**state["point"]) if state["point"] else None


def _update(inverse: Tensor, s: Tensor, y: Tensor, along: float, s_b_s: float) -> None:
    """H⁺ in the place of H, in one pass over it and one for its scale."""
    turned = inverse @ y
    y_h_y = float(y @ turned)
    shrink, share = _scaling(s_b_s / along, y_h_y / along, len(s))
    v = sqrt(y_h_y) * (s / along - turned / y_h_y)
    left = torch.stack([turned / -y_h_y, share * v, (shrink / along) * s], dim=1)
    inverse.addmm_(left, torch.stack([turned, v, s]))
    if shrink != 1.0:
        inverse.mul_(1.0 / shrink)


def _scaling(b: float, h: float, weights: int) -> tuple[float, float]:
    """τ and φ."""
    # Never below zero but for rounding, by Cauchy and Schwarz; zero would be divided by.
    a = max(h * b - 1.0, 1e-14)
    rho = min(1.0, h * (1.0 - sqrt(a / (a + 1.0))))
    theta = max((rho - 1.0) / a, min(1.0 / rho, (1.0 - b) / b))
    sigma = 1.0 + a * theta
    root = sigma ** (-1.0 / max(1, weights - 1))
    at_most = min(1.0, 1.0 / b)
    shrink = at_most * min(root, 1.0 / theta) if theta > 0 else min(at_most * root, sigma)
    return shrink, (1.0 - theta) / sigma
