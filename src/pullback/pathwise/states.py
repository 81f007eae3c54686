"""The state of a simulation: one tensor, or named tensors; given, or drawn from distributions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.derivatives._checks import check_input, check_same_rows
from pullback.errors import InputError, ShapeError
from pullback.pathwise.distributions import Distribution

State = Tensor | Distribution | Mapping[str, Tensor] | Mapping[str, Distribution]


@dataclass(frozen=True, eq=False)
class States:
    """A parsed state: parts by name, each [N] or [N, n].

    Attributes:
        names: of the parts; a single None for a state without names.
        parts: tensors, or distributions, one a name.
        differentiable: whether a derivative is wanted, one a name.
    """

    names: tuple[str | None, ...]
    parts: tuple[Any, ...]
    differentiable: tuple[bool, ...]

    @property
    def drawn(self) -> bool:
        """Whether the state is drawn; else it is given."""
        return isinstance(self.parts[0], Distribution)

    @property
    def rows(self) -> int | None:
        """N, if the state is given."""
        return None if self.drawn else len(self.parts[0])

    @property
    def uniforms(self) -> int:
        """How many uniforms a drawn row takes."""
        return sum(part.width for part in self.parts) if self.drawn else 0

    @property
    def columns(self) -> tuple[str, ...]:
        """D names, one a column: a part spots [N, 2] gives spots1 and spots2."""
        names: list[str] = []
        for name, size in zip(self.names, self.sizes, strict=True):
            if name is None:
                names += [f"x{d}" for d in range(size or 1)]
            else:
                names += [name] if size is None else [f"{name}{d + 1}" for d in range(size)]
        return tuple(names)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Columns of each part; None for a part [N]."""
        return tuple(
            part.size if self.drawn else (None if part.dim() == 1 else part.shape[1])
            for part in self.parts
        )

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Whether a derivative is wanted, one a column."""
        pairs = zip(self.differentiable, self.sizes, strict=True)
        return tuple(flag for flag, size in pairs for _ in range(size or 1))

    def take(self, rows: slice | Tensor) -> list[Tensor]:
        """Rows of a given state."""
        return [part[rows].detach() for part in self.parts]

    def draw(self, u: Tensor) -> list[Tensor]:
        """States of uniforms [n, uniforms]."""
        cuts = u.split([part.width for part in self.parts], dim=1)
        return [part.shaped(cut) for part, cut in zip(self.parts, cuts, strict=True)]

    def bundle(self, values: Sequence[Tensor]) -> Any:
        """What the payoff is given: a tensor, or a dict of tensors."""
        return values[0] if self.names[0] is None else dict(zip(self.names, values, strict=True))

    def matrix(self, values: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Parts as columns, [N, D]."""
        return torch.cat([v.to(dtype).reshape(len(v), -1) for v in values], dim=1)


def parse_state(state: Any, wrt: Sequence[str] | str | None = None) -> States:
    """Check a state, and decide by which parts it is differentiated.

    Raises:
        InputError: no part, parts that are neither tensors nor distributions, an unknown name.
        ShapeError: a part is not [N] or [N, n], or rows differ.
    """
    named = isinstance(state, Mapping)
    if named and not state:
        raise InputError("pathwise: expected a state with at least one part, got an empty mapping")
    names = tuple(state) if named else (None,)
    parts = tuple(state.values()) if named else (state,)
    if not all(isinstance(part, Distribution) for part in parts):
        parts = tuple(_tensor(name, part) for name, part in zip(names, parts, strict=True))
        check_same_rows("pathwise", [_called(name) for name in names], parts)
    return States(names, parts, _differentiable(names, parts, wrt))


def _tensor(name: str | None, part: Any) -> Tensor:
    if isinstance(part, Distribution):
        raise InputError(
            "pathwise: expected a state that is all tensors or all distributions, got both; draw "
            "the distributions first"
        )
    tensor = check_input("pathwise", _called(name), part)
    expected = "[N, D]" if name is None else "[N] or [N, n]"
    if tensor.dim() not in ((2,) if name is None else (1, 2)):
        raise ShapeError(
            f"pathwise: expected {_called(name)} of shape {expected}, got {list(tensor.shape)}"
        )
    return tensor


def _differentiable(
    names: Sequence[str | None], parts: Sequence[Any], wrt: Sequence[str] | str | None
) -> tuple[bool, ...]:
    floating = [isinstance(part, Distribution) or part.is_floating_point() for part in parts]
    if wrt is None:
        chosen = floating
    else:
        wanted = [wrt] if isinstance(wrt, str) else list(wrt)
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise InputError(
                f"pathwise: expected wrt to name parts of the state among {list(names)}, got "
                f"{unknown[0]!r}"
            )
        chosen = [name in wanted for name in names]
    for name, part, flag in zip(names, parts, chosen, strict=True):
        if flag and not isinstance(part, Distribution) and not part.is_floating_point():
            raise InputError(
                f"pathwise: {_called(name)} is {part.dtype}, which carries no derivative: leave it "
                "out of wrt, or pass it as a float"
            )
    if not any(chosen):
        raise InputError("pathwise: expected at least one part to differentiate by, got none")
    return tuple(chosen)


def _called(name: str | None) -> str:
    return "state" if name is None else f"state[{name!r}]"
