"""A trained network in the user's units: values, gradients, Hessians, in bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback._state import module_mode
from pullback.learning.networks import Twin
from pullback.learning.scaling import Scaling

Array = NDArray[np.float64]

# Numbers that one chunk's largest result may hold: 32 MB in float64.
_NUMBERS = 4_000_000
_MOST_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A network between scalings.

    Attributes:
        twin: works on standardised numbers.
        scaling: in float64 on the CPU; rows are standardised before they are cast to the network's
            dtype, since float32 cannot hold x = 1,000,000.01.
        outputs: K.
    """

    twin: Twin
    scaling: Scaling
    outputs: int

    def values(self, x: Array) -> Array:
        """Y [N, K] at x [N, D]."""

        def chunk(scaled: Tensor) -> tuple[Tensor, ...]:
            return (self.scaling.unscale_y(_plain(self.twin.module(scaled))),)

        return self._in_chunks(chunk, x, width=self.outputs)[0]

    def values_and_jacobian(self, x: Array) -> tuple[Array, Array]:
        """Y [N, K] and ∂y/∂x [N, K, D] at x [N, D]."""

        def chunk(scaled: Tensor) -> tuple[Tensor, ...]:
            y, jac = self.twin(scaled)
            return self.scaling.unscale_y(_plain(y)), self.scaling.unscale_dydx(_plain(jac))

        y, jac = self._in_chunks(chunk, x, width=self.outputs * x.shape[1])
        return y, jac

    def hessian(self, x: Array) -> Array:
        """∂²y/∂x² [N, K, D, D] at x [N, D], one direction after the other."""
        basis = torch.eye(x.shape[1], dtype=self._like.dtype, device=self._like.device)

        def chunk(scaled: Tensor) -> tuple[Tensor, ...]:
            rows = [
                _plain(self.twin.value_jacobian_and_hvp(scaled, v.expand_as(scaled))[2])
                for v in basis
            ]
            return (self.scaling.unscale_hessian(torch.stack(rows, dim=3)),)

        return self._in_chunks(chunk, x, width=self.outputs * x.shape[1] ** 2)[0]

    @property
    def _like(self) -> Tensor:
        return next(self.twin.parameters())

    def _in_chunks(
        self, chunk: Callable[[Tensor], tuple[Tensor, ...]], x: Array, *, width: int
    ) -> tuple[Array, ...]:
        """Results for all rows, each array allocated once and filled chunk by chunk."""
        rows = max(1, min(_MOST_ROWS, _NUMBERS // max(width, 1)))
        whole: list[Array] = []
        # Out of a caller's inference_mode, where Hessians and callable activations get no graph.
        with torch.inference_mode(False), torch.no_grad(), module_mode(self.twin, training=False):
            for start in range(0, len(x), rows):
                part = torch.from_numpy(np.ascontiguousarray(x[start : start + rows], float))
                scaled = self.scaling.scale_x(part).to(self._like)
                results = [result.numpy() for result in chunk(scaled)]
                whole = whole or [np.empty((len(x), *r.shape[1:])) for r in results]
                for target, result in zip(whole, results, strict=True):
                    target[start : start + rows] = result
        return tuple(whole)


def _plain(tensor: Tensor) -> Tensor:
    """On the CPU in float64, where the scaling lives."""
    return tensor.detach().to(device="cpu", dtype=torch.float64)
