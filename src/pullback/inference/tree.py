"""Networks return tensors in containers: flattened to a list of named tensors, and back."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Where a tensor goes."""

    position: int


class Layout:
    """The container that a network returns, with its tensors taken out.

    >>> import torch
    >>> tensors, layout = flatten({"logits": torch.ones(2, 3), "hidden": (torch.zeros(2), None)})
    >>> layout.names
    ('logits', 'hidden.0')
    >>> layout.fill(["a", "b"])
    {'logits': 'a', 'hidden': ('b', None)}
    """

    def __init__(self, skeleton: Any, names: Sequence[str]) -> None:
        self._skeleton = skeleton
        self.names = tuple(names)

    def fill(self, values: Sequence[Any]) -> Any:
        """The container with these values in the places of its tensors."""
        return _fill(self._skeleton, values)


def flatten(tree: Any) -> tuple[list[Tensor], Layout]:
    """Take the tensors out of a tensor, tuple, list, dict or dataclass, however nested."""
    tensors: list[Tensor] = []
    names: list[str] = []
    skeleton = _take_out(tree, "", tensors, names)
    return tensors, Layout(skeleton, names)


def _take_out(tree: Any, name: str, tensors: list[Tensor], names: list[str]) -> Any:
    if isinstance(tree, Tensor):
        tensors.append(tree)
        names.append(name)
        return _Slot(len(tensors) - 1)
    parts = list(_parts(tree))
    if not parts:
        return tree
    prefix = f"{name}." if name else ""
    return _with_parts(
        tree, {key: _take_out(part, f"{prefix}{key}", tensors, names) for key, part in parts}
    )


def _fill(tree: Any, values: Sequence[Any]) -> Any:
    if isinstance(tree, _Slot):
        return values[tree.position]
    parts = list(_parts(tree))
    if not parts:
        return tree
    return _with_parts(tree, {key: _fill(part, values) for key, part in parts})


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, Mapping):
        yield from tree.items()
    elif isinstance(tree, tuple | list):
        yield from enumerate(tree)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type | _Slot):
        yield from ((field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree))


def _with_parts(tree: Any, parts: dict[Any, Any]) -> Any:
    if isinstance(tree, tuple):
        values = list(parts.values())
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    if isinstance(tree, list):
        return list(parts.values())
    # A copy keeps the class, and whatever it holds beside its parts, without calling __init__.
    changed = copy.copy(tree)
    for key, value in parts.items():
        if isinstance(tree, Mapping):
            changed[key] = value
        else:
            object.__setattr__(changed, key, value)
    return changed
