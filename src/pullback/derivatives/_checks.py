"""The checks every call shares; `api` is the name of the call, and begins each message."""

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from pullback.errors import DtypeError, InputError, ShapeError, UnconnectedInputError


def shape_of(tensor: Tensor) -> str:
    """A shape as messages write it: [8, 3]."""
    return str(list(tensor.shape))


def check_input(api: str, name: str, value: object) -> Tensor:
    """An input is a tensor with a row dimension."""
    if not isinstance(value, Tensor):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise InputError(
            f"{api}: expected {name} to be a tensor [N, *D], got {kind}. Convert it "
            "(torch.as_tensor(...)), or close over it if it is not an input: lambda x: f(x, it)."
        )
    if value.dim() == 0:
        raise ShapeError(
            f"{api}: expected {name} to be a tensor [N, *D] with one row a sample, got a scalar. "
            f"For a single sample use {name}.reshape(1, -1)."
        )
    return value


def check_same_rows(api: str, names: Sequence[str], values: Sequence[Tensor]) -> None:
    """All inputs have the same N."""
    if len({len(value) for value in values}) > 1:
        shapes = ", ".join(f"{n} {shape_of(v)}" for n, v in zip(names, values, strict=True))
        raise ShapeError(
            f"{api}: expected all inputs to have the same number of rows N, got {shapes}. An input "
            "that all rows share is not a row input: close over it (lambda x: f(x, shared))."
        )


def check_differentiable(api: str, name: str, value: Tensor) -> None:
    """A derivative is asked for only where there is one."""
    if value.is_complex():
        raise DtypeError(
            f"{api}: {name} is {value.dtype}, and the derivative with respect to a complex input "
            "depends on a convention. Pass the real and imaginary parts as two real inputs."
        )
    if not value.is_floating_point():
        raise DtypeError(
            f"{api}: expected a floating-point input, but {name} is {value.dtype}, which cannot "
            f"carry a derivative. Use {name}.float() if it is a quantity; if it is a category, "
            "leave it out of wrt (it is passed on as it is)."
        )


def check_unconnected(api: str, unconnected: str) -> None:
    """Only two answers are known."""
    if unconnected not in ("error", "zero"):
        raise InputError(f"{api}: expected unconnected='error' or 'zero', got {unconnected!r}.")


def check_chunk_size(api: str, chunk_size: int | None) -> None:
    """A chunk holds at least one output."""
    if chunk_size is not None and chunk_size < 1:
        raise InputError(f"{api}: expected chunk_size to be 1 or more, or None, got {chunk_size}.")


def check_output(api: str, y: object, rows: int) -> Tensor:
    """F gave one tensor [N, *K] of real floating-point numbers."""
    if not isinstance(y, Tensor):
        raise InputError(
            f"{api}: expected f to return one tensor [N, *K], got {type(y).__name__}. Pick the "
            "output whose derivative is wanted: lambda x: f(x)[0]."
        )
    if y.dim() == 0 or len(y) != rows:
        raise ShapeError(
            f"{api}: expected f to return one row per sample, [N, *K] with N = {rows}, got "
            f"{'a scalar' if y.dim() == 0 else shape_of(y)}. If f averages or sums over rows (a "
            "loss), return the terms instead (reduction='none'): rows are d y_i / d x_i here, "
            "never 1/N of it."
        )
    if y.is_complex():
        raise DtypeError(
            f"{api}: f returns {y.dtype}. Return real numbers: torch.view_as_real(f(x))."
        )
    if not y.is_floating_point():
        raise DtypeError(
            f"{api}: f returns {y.dtype}, which has no derivative: an integer cast, argmax or a "
            "comparison cuts the graph. Return what comes before it."
        )
    return y


def one_output_a_row(api: str, y: Tensor) -> Tensor:
    """[N] or [N, 1] to [N]."""
    if y.dim() == 1:
        return y
    if y.shape[1:] != (1,):
        raise ShapeError(
            f"{api}: expected f to return one number a row, [N] or [N, 1], got {shape_of(y)}. "
            "For several outputs use value_and_jacobian, or pick one: lambda x: f(x)[:, 0]."
        )
    return y.squeeze(1)


def check_direction(api: str, name: str, v: object, x: Tensor) -> Tensor:
    """A direction [N, *D], or [*D] for every row, in x's dtype and on its device."""
    if not isinstance(v, Tensor):
        raise InputError(
            f"{api}: expected the direction {name} to be a tensor, got {type(v).__name__}."
        )
    if v.shape not in (x.shape, x.shape[1:]):
        raise ShapeError(
            f"{api}: expected the direction {name} to have the shape of its input, "
            f"{shape_of(x)}, or of one row, {list(x.shape[1:])}, got {shape_of(v)}."
        )
    return as_dtype_of(api, f"the direction {name}", v, x).expand_as(x)


def as_dtype_of(api: str, name: str, value: Tensor, other: Tensor) -> Tensor:
    """The value in another's dtype; nothing is moved between devices unasked."""
    if value.device != other.device:
        raise InputError(
            f"{api}: expected {name} on {other.device}, got it on {value.device}: move it there."
        )
    if value.is_complex():
        raise DtypeError(f"{api}: expected {name} to be real, got {value.dtype}.")
    return value.to(other.dtype)


def refuse_detached(api: str, names: Sequence[str]) -> NoReturn:
    """The output has no graph at all."""
    raise UnconnectedInputError(
        f"{api}: the output of f has no graph, so its derivative with respect to "
        f"{', '.join(names)} is unknown. Look inside f for .detach(), .item(), .numpy(), "
        "torch.tensor(...), a no_grad block or an integer cast. If f really does not depend on "
        "it, pass unconnected='zero'."
    )


def refuse_unconnected(api: str, name: str) -> NoReturn:
    """The output has a graph, but not to this input."""
    raise UnconnectedInputError(
        f"{api}: the output of f does not depend on {name}. Either f ignores it, or the way from "
        "it is cut (.detach(), a no_grad block, an integer cast). Leave it out of wrt, or pass "
        "unconnected='zero' to get zeros."
    )


def real_dtype(*tensors: Tensor) -> torch.dtype:
    """The coarsest floating dtype among tensors: the one that sets the rounding error."""
    dtypes = [t.dtype for t in tensors if t.is_floating_point()] or [torch.get_default_dtype()]
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)
