"""A payoff with its states and its noise: any rows of it, with values and derivatives.

NOTE [One backward]
Rows are independent, so the gradient of Σ_n y_n holds every ∂y_n/∂x_n: one backward gives all D
derivatives of all rows (adjoint differentiation), at a small multiple of the cost of the values.
K outputs take K of them. Several paths a state are rows of the payoff that share a leaf.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.derivatives import check_independent_rows
from pullback.derivatives._checks import check_output
from pullback.derivatives._inputs import normal
from pullback.errors import UnconnectedInputError
from pullback.pathwise.draws import Draws, Given
from pullback.pathwise.states import States

Payoff = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Paths:
    """Rows of a simulation before the payoff is applied.

    Attributes:
        values: parts of the state, each [n] or [n, size].
        noise: [n, paths, *noise], antithetic paths included.
    """

    values: list[Tensor]
    noise: Tensor

    def take(self, rows: Tensor) -> "Paths":
        """Some rows."""
        return Paths([v[rows] for v in self.values], self.noise[rows])

    def column(self, part: int, place: int | None) -> Tensor:
        """One column of the state, [n]."""
        return self.values[part] if place is None else self.values[part][:, place]

    def with_column(self, part: int, place: int | None, column: Tensor) -> "Paths":
        """The same with one column of the state replaced, the noise kept."""
        values = list(self.values)
        if place is None:
            values[part] = column
        else:
            values[part] = values[part].clone()
            values[part][:, place] = column
        return Paths(values, self.noise)

    def double(self) -> "Paths":
        """In float64; integers are left."""
        values = [v.double() if v.is_floating_point() else v for v in self.values]
        return Paths(values, self.noise.double())


@dataclass(frozen=True, eq=False)
class Simulation:
    """What `pathwise` does, for any range of rows.

    Attributes:
        payoff: a function of state and noise with independent rows.
        states: given or drawn.
        draws: the noise.
        antithetic: whether each path is averaged with its mirror image.
        dtype, device: of the noise and of drawn states.
        rows: numbers of the rows that are asked for.
    """

    payoff: Payoff
    states: States
    draws: Draws
    antithetic: bool
    dtype: torch.dtype
    device: torch.device
    rows: range

    @property
    def paths_per_row(self) -> int:
        """Rows of the payoff for one row of labels."""
        return self.draws.paths * (2 if self.antithetic else 1)

    def paths(self, rows: range) -> Paths:
        """Rows of the labels, by their numbers."""
        first = self.rows.start
        if self.states.drawn:
            values = self._drawn(rows)
        else:
            values = self.states.take(slice(rows.start - first, rows.stop - first))
        return Paths(values, self._noise(rows))

    def trial_paths(self, count: int, batch: int = 0) -> Paths:
        """About `count` rows like those asked for; other noise in each batch, if it is drawn.

        A given state may have fewer rows, or be sorted: it is run through evenly, or repeatedly.
        """
        rows = range(self.rows.start + batch * count, self.rows.start + (batch + 1) * count)
        if self.states.drawn:
            return self.paths(rows)
        given = len(self.rows)
        if isinstance(self.draws, Given):
            index = torch.linspace(0, given - 1, min(count, given)).long()
            return self.paths(self.rows).take(index)
        index = torch.arange(count)
        index = index * given // count if given > count else index % given
        return Paths(self.states.take(index), self._noise(rows))

    def _drawn(self, rows: range) -> list[Tensor]:
        uniforms = self.draws.uniforms(rows.start, rows.stop)
        return [self._placed(part) for part in self.states.draw(uniforms)]

    def _noise(self, rows: range) -> Tensor:
        normals = self._placed(self.draws.normals(rows.start, rows.stop))
        return torch.cat([normals, -normals], 1) if self.antithetic else normals

    def _placed(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype)

    def values(self, paths: Paths) -> Tensor:
        """Values y [n, K], without a graph."""
        with torch.no_grad():
            return self._mean_payoff(paths.values, paths.noise)

    def labels(self, paths: Paths, *, zero: bool) -> tuple[Tensor, Tensor]:
        """Labels y [n, K] and dydx [n, K, D]; NaN where no derivative is wanted.

        Args:
            paths: rows of the simulation.
            zero: whether a part that y does not depend on gives zeros instead of an error.
        """
        with torch.inference_mode(False), torch.enable_grad():
            leaves = [
                normal(v).detach().requires_grad_(flag)
                for v, flag in zip(paths.values, self.states.differentiable, strict=True)
            ]
            y = self._mean_payoff(leaves, paths.noise)
            pulled = [self._pulled(y, k, leaves, zero) for k in range(y.shape[1])]
        # Copies of [n, K, D] cost as much as a small payoff: one output needs none.
        return y.detach(), pulled[0][:, None] if len(pulled) == 1 else torch.stack(pulled, dim=1)

    def _mean_payoff(self, values: Sequence[Tensor], noise: Tensor) -> Tensor:
        """The mean over the paths of each row, [n, K]."""
        n, paths = noise.shape[:2]
        repeated = [_repeated(v, paths) for v in values]
        # The payoff's own copy: it may work in place, and these draws are used again.
        noise = noise.reshape(n * paths, *noise.shape[2:]).clone()
        y = self.payoff(self.states.bundle(repeated), noise)
        y = check_output("pathwise", y, n * paths)
        return y.reshape(n, paths, -1).mean(1) if paths > 1 else y.reshape(n, -1)

    def _pulled(self, y: Tensor, k: int, leaves: list[Tensor], zero: bool) -> Tensor:
        """∂y_k/∂x, [n, D]. See NOTE [One backward]."""
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        grads: Sequence[Tensor | None] = [None] * len(wanted)
        if y.requires_grad:
            cotangent = torch.zeros_like(y)
            cotangent[:, k] = 1.0
            last = k + 1 == y.shape[1]
            grads = torch.autograd.grad(
                y, wanted, cotangent, retain_graph=not last, allow_unused=True
            )
        if not zero:
            self._refuse_unconnected(grads)
        found = iter(grads)
        parts = []
        for leaf in leaves:
            part = next(found) if leaf.requires_grad else y.new_full(leaf.shape, torch.nan)
            part = torch.zeros_like(leaf) if part is None else part
            parts.append(part.reshape(len(leaf), -1).to(y.dtype))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _refuse_unconnected(self, grads: Sequence[Tensor | None]) -> None:
        flags = zip(self.states.names, self.states.differentiable, strict=True)
        names = [name for name, flag in flags if flag]
        cut = [name for name, grad in zip(names, grads, strict=True) if grad is None]
        if cut:
            which = "its state" if cut[0] is None else ", ".join(map(str, cut))
            raise UnconnectedInputError(
                f"pathwise: the payoff has no derivative by {which}: it ignores it, the way is cut "
                "(.detach(), .item(), a no_grad block), or it is all jumps (a comparison has no "
                "derivative; smooth it with soft_step, or use likelihood_ratio). If it really does "
                "not matter, leave it out of wrt, or pass unconnected='zero'."
            )

    def check_rows(self) -> None:
        """Raise if a path of the payoff depends on another one."""
        few = self.paths(self.rows[:4])
        noise = few.noise[:, 0]

        def run(*parts: Tensor) -> Tensor:
            return self.payoff(self.states.bundle(parts[:-1]), parts[-1])

        check_independent_rows(run, (*few.values, noise))


def _repeated(value: Tensor, paths: int) -> Tensor:
    """Each row `paths` times; a copy, so that a payoff may work in place."""
    if paths == 1:
        return value.clone()
    rows = value[:, None].expand(len(value), paths, *value.shape[1:])
    return rows.reshape(len(value) * paths, *value.shape[1:])
