"""How the network is called with a batch, and which of its inputs get gradients."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.errors import DtypeError, InputError, ShapeError

Key = int | str
Values = Tensor | np.ndarray


@dataclass(frozen=True)
class Arguments:
    """The inputs' names, their container, and the positions whose gradient is asked for.

    Attributes:
        kind: "tensor" (called f(x)), "tuple" (f(*x)) or "dict" (f(**x)).
        keys: None, indices or names, one an input.
        wrt: positions among `keys` that get gradients.
        single: gradients come back as one tensor, not in the container.
    """

    kind: str
    keys: tuple[Hashable, ...]
    wrt: tuple[int, ...] = ()
    single: bool = True

    def call(self, model: Callable[..., Any], values: Sequence[Tensor]) -> Any:
        """Call the model as the container says."""
        if self.kind == "dict":
            return model(**dict(zip(map(str, self.keys), values, strict=True)))
        return model(*values)

    def name(self, position: int) -> str:
        """How the caller would write this input: inputs, inputs[0], inputs['image']."""
        return "inputs" if self.kind == "tensor" else f"inputs[{self.keys[position]!r}]"

    def pack(self, gradients: Sequence[Any]) -> Any:
        """Gradients, one for each of `wrt`, in the caller's container."""
        if self.single:
            return gradients[0]
        if self.kind == "dict":
            return {self.keys[i]: g for i, g in zip(self.wrt, gradients, strict=True)}
        return tuple(gradients)

    def choosing(self, wrt: Key | Sequence[Key] | None, values: Sequence[Values]) -> "Arguments":
        """The same arguments with `wrt` resolved: default all inputs of a floating dtype.

        Raises:
            InputError: wrt names no input.
            DtypeError: a named input, or the only one, is not of a floating dtype.
        """
        if wrt is None:
            positions = [i for i, value in enumerate(values) if _is_floating(value)]
            positions = positions or list(range(len(values)))
        else:
            wanted = [wrt] if isinstance(wrt, int | str) else list(wrt)
            unknown = [key for key in wanted if key not in self.keys]
            if self.kind == "tensor" or unknown or not wanted or len(set(wanted)) < len(wanted):
                raise InputError(
                    f"infer: expected wrt to name inputs among {list(self.keys)}, got {wrt!r}. "
                    "A single tensor needs no wrt."
                )
            positions = [self.keys.index(key) for key in wanted]
        for i in positions:
            if not _is_floating(values[i]):
                raise DtypeError(
                    f"infer: expected a floating-point input, but {self.name(i)} is "
                    f"{values[i].dtype}, which cannot carry a derivative. Use .float() if it is a "
                    "quantity (pixels); if it is a category, differentiate its embedding instead."
                )
        single = self.kind == "tensor" or isinstance(wrt, int | str)
        return Arguments(self.kind, self.keys, tuple(positions), single)


def read_arguments(tree: object) -> tuple[Arguments, list[Values]]:
    """Split what the caller hands in, or one item or batch of it, into arrays.

    Raises:
        InputError: something in it is not an array.
    """
    if isinstance(tree, Mapping):
        kind, keys, given = "dict", tuple(tree.keys()), list(tree.values())
    elif isinstance(tree, tuple | list):
        kind, keys, given = "tuple", tuple(range(len(tree))), list(tree)
    else:
        kind, keys, given = "tensor", (None,), [tree]
    arguments = Arguments(kind, keys)
    if not given:
        raise InputError(f"infer: expected at least one input, got an empty {kind}")
    for i, value in enumerate(given):
        if not isinstance(value, Tensor | np.ndarray):
            raise InputError(
                f"infer: expected {arguments.name(i)} to be a tensor or a numpy array with one row "
                f"a sample, got {type(value).__name__}. Fix it in the call (functools.partial), or "
                "let unpack= take what the network needs: unpack=lambda item: item[0]."
            )
    return arguments, given


def count_rows(arguments: Arguments, values: Sequence[Values]) -> int:
    """N, the same for all inputs.

    Raises:
        ShapeError: a scalar, no rows, or inputs that disagree.
    """
    shapes = {arguments.name(i): tuple(value.shape) for i, value in enumerate(values)}
    shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    if any(not shape for shape in shapes.values()):
        raise ShapeError(f"infer: expected one row a sample, [N, *D], got a scalar: {shown}")
    counts = {shape[0] for shape in shapes.values()}
    if len(counts) > 1 or counts == {0}:
        raise ShapeError(
            f"infer: expected all inputs to have the same number of rows N > 0, got {shown}. An "
            "input that all rows share is not a row input: fix it with functools.partial."
        )
    return counts.pop()


def to_tensor(value: Values) -> Tensor:
    """A tensor of one's own: writing to it reaches nobody else's memory."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return torch.from_numpy(np.array(value))


def _is_floating(value: Values) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point()
    return np.issubdtype(value.dtype, np.floating)
