"""Random numbers for row n, whatever is drawn before, after or beside it.

NOTE [Blocks]
Rows belong to blocks of 1,024. The numbers of block b come from a generator of their own, seeded
with (seed, b), so that chunks, ranks and restarts give the same rows. They are drawn on the CPU in
float64 and moved afterwards, so that devices and dtypes give the same rows too.

NOTE [Sobol]
A scrambled Sobol point has one coordinate for each uniform of the state and for each normal of the
noise: jointly, since noise alone gains little (the state's sampling error stays). Coordinates have
30 bits and may be zero, so half a unit in the last place is added before the normal quantile.
Numbers of rows that are powers of two are best.
"""

from abc import ABC, abstractmethod
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from pullback.errors import InputError

BLOCK = 1024
_STATE, _NOISE = 0, 1


class Draws(ABC):
    """Uniforms for states and normals for paths.

    Args:
        seed: not negative.
        width: uniforms a row for the state; 0 if the state is given.
        noise: the shape of one path's noise.
        paths: independent paths a row.
    """

    def __init__(self, seed: int, width: int, noise: tuple[int, ...], paths: int) -> None:
        self.seed = seed
        self.width = width
        self.noise = noise
        self.paths = paths

    @abstractmethod
    def uniforms(self, start: int, stop: int) -> Tensor:
        """For the state: [n, width] in (0, 1), float64."""

    @abstractmethod
    def normals(self, start: int, stop: int) -> Tensor:
        """For the paths: [n, paths, *noise], float64."""


class PseudoRandom(Draws):
    """Independent draws. See NOTE [Blocks]."""

    def uniforms(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        # 1 - u: random() may give 0, whose normal quantile is infinite, but never 1.
        return self._rows(
            start, stop, lambda b: 1.0 - self._rng(b, _STATE).random((BLOCK, self.width))
        )

    def normals(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        shape = (BLOCK, self.paths, *self.noise)
        return self._rows(start, stop, lambda b: self._rng(b, _NOISE).standard_normal(shape))

    def _rng(self, block: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64([self.seed, block, stream]))

    def _rows(self, start: int, stop: int, draw) -> Tensor:  # type: ignore[no-untyped-def]
        first = start // BLOCK
        blocks = [draw(b) for b in range(first, max(first, (stop - 1) // BLOCK) + 1)]
        joined = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return torch.from_numpy(joined)[start - first * BLOCK : stop - first * BLOCK]


class Sobol(Draws):
    """Scrambled Sobol points, jointly over state and noise. See NOTE [Sobol]."""

    def __init__(self, seed: int, width: int, noise: tuple[int, ...], paths: int) -> None:
        super().__init__(seed, width, noise, paths)
        dimension = width + paths * prod(noise)
        if dimension > SobolEngine.MAXDIM:
            raise InputError(
                f"pathwise: a Sobol point has at most {SobolEngine.MAXDIM} coordinates; state and "
                f"noise take {dimension}. Use sampler='pseudo', or fewer steps."
            )
        self._engine = SobolEngine(max(dimension, 1), scramble=True, seed=seed)
        self._rows: tuple[int, int] | None = None
        self._points = torch.empty(0)

    def uniforms(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        return self._draw(start, stop)[:, : self.width]

    def normals(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        points = self._draw(start, stop)[:, self.width : self.width + self.paths * prod(self.noise)]
        return torch.special.ndtri(points).reshape(stop - start, self.paths, *self.noise)

    def _draw(self, start: int, stop: int) -> Tensor:
        if self._rows != (start, stop):
            if self._engine.num_generated > start:
                self._engine.reset()
            if self._engine.num_generated < start:
                self._engine.fast_forward(start - self._engine.num_generated)
            cell = 2.0**-SobolEngine.MAXBIT
            points = self._engine.draw(stop - start, dtype=torch.float64)
            self._points = points.clamp(max=1.0 - cell) + 0.5 * cell
            self._rows = (start, stop)
        return self._points


class Given(Draws):
    """The caller's own noise, [N, *noise]: one path a row."""

    def __init__(self, noise: Tensor, width: int) -> None:
        super().__init__(0, width, tuple(noise.shape[1:]), 1)
        self._given = noise

    def uniforms(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        raise InputError(
            "pathwise: states that are drawn need noise that is drawn: pass the shape of one "
            "path's noise instead of a tensor."
        )

    def normals(self, start: int, stop: int) -> Tensor:
        """See `Draws`."""
        return self._given[start:stop, None]
