"""What every market is: a payoff, states to draw, and an exact answer to hold labels against.

NOTE [Wider than the dynamics]
States are drawn with about 1.5 times the volatility that would lead to them. The label of a state
does not depend on how the state was found, so this biases nothing; but a surrogate is asked about
stressed states, where a plain simulation leaves few samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pullback.derivatives import value_and_gradient
from pullback.errors import InputError, ShapeError
from pullback.pathwise.distributions import Distribution
from pullback.pathwise.labels import Labels, pathwise
from pullback.pathwise.states import parse_state

Parameter = float | tuple[float, ...] | Distribution


class Market(ABC):
    """A contract in a model.

    Each of `parameters` is an attribute: a number is fixed, a `Distribution` makes it an input
    that is drawn and differentiated by. A state may also give a parameter that is fixed here.

    Attributes:
        parameters: names of what the value depends on.
        output: name of the value.
        exact_rows: rows of the exact answer at a time.
    """

    parameters: ClassVar[tuple[str, ...]]
    output: ClassVar[str] = "price"
    exact_rows: ClassVar[int] = 8192

    @property
    @abstractmethod
    def noise(self) -> tuple[int, ...]:
        """The shape of one path's standard normals."""

    @abstractmethod
    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """The discounted payoff of each path, [N]."""

    @abstractmethod
    def value(self, p: SimpleNamespace) -> Tensor:
        """The exact value from parameters that are numbers, [N] or [N, n], as `at` gives them."""

    @property
    def states(self) -> dict[str, Distribution]:
        """The inputs: parameters that are drawn. See NOTE [Wider than the dynamics]."""
        found = {name: getattr(self, name) for name in self.parameters}
        return {name: part for name, part in found.items() if isinstance(part, Distribution)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the D inputs, one a column."""
        return parse_state(self.states).columns

    def changed(self, **changes: Any) -> "Market":
        """The same market with other parameters or settings."""
        return replace(self, **changes)  # type: ignore[type-var]  # each market is a dataclass

    def at(self, state: Mapping[str, Tensor]) -> SimpleNamespace:
        """All parameters as tensors: those of the state, and the fixed ones.

        Raises:
            InputError: the state names what is no parameter, or leaves out one that is drawn.
        """
        unknown = [name for name in state if name not in self.parameters]
        missing = [name for name in self.states if name not in state]
        if unknown or missing:
            raise InputError(
                f"{type(self).__name__}: expected a state with {', '.join(self.states)}, and "
                f"perhaps others of {', '.join(self.parameters)}; got {', '.join(state)}"
            )
        like = next(iter(state.values()))
        values = {name: state.get(name) for name in self.parameters}
        for name, value in values.items():
            if value is None:
                fixed = torch.as_tensor(getattr(self, name), dtype=torch.float64)
                values[name] = fixed.to(like)
        return SimpleNamespace(**values)

    def sample(self, rows: int | range, **options: Any) -> Labels:
        """Draw states and simulate a path from each; options are those of `pathwise`."""
        named = {"outputs": (self.output,), **options}
        return pathwise(self.payoff, self.states, self.noise, rows=rows, **named)

    def exact_value(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """The exact value in states x, [N].

        Args:
            x: [N, D] with columns as in `inputs`, or a mapping as the payoff takes it.
        """
        state = self._state(x)
        return torch.cat([self._rows_value(part) for part in _chunks(state, self.exact_rows)])

    def exact_gradient(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """The exact derivatives in states x by its columns, [N, D]."""
        state = self._state(x)
        return torch.cat([self._gradient(part) for part in _chunks(state, self.exact_rows)])

    def _rows_value(self, state: dict[str, Tensor]) -> Tensor:
        value = self.value(self.at(state))
        return value.expand(len(next(iter(state.values()))))

    def _gradient(self, state: dict[str, Tensor]) -> Tensor:
        _, grads = value_and_gradient(
            lambda **parts: self._rows_value(parts), state, check_rows=False, unconnected="zero"
        )
        assert isinstance(grads, dict)
        return torch.cat([g.reshape(len(g), -1) for g in grads.values()], dim=1)

    def _state(self, x: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not isinstance(x, Tensor):
            return dict(x)
        sizes = [part.size for part in self.states.values()]
        if x.dim() != 2 or x.shape[1] != sum(size or 1 for size in sizes):
            raise ShapeError(
                f"{type(self).__name__}: expected x [N, D] with the columns "
                f"{', '.join(self.inputs)}, got {list(x.shape)}"
            )
        cuts = x.split([size or 1 for size in sizes], dim=1)
        named = zip(self.states, sizes, cuts, strict=True)
        return {name: cut[:, 0] if size is None else cut for name, size, cut in named}


def _chunks(state: dict[str, Tensor], rows: int) -> list[dict[str, Tensor]]:
    total = len(next(iter(state.values())))
    starts = range(0, max(total, 1), rows)
    return [{name: part[i : i + rows] for name, part in state.items()} for i in starts]
