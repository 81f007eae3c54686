"""Cotangents that select one output a row."""

import torch
from torch import Tensor

from pullback.errors import DtypeError, InputError
from pullback.inference.recording import Recording
from pullback.inference.rows import RowValues

API = "run.gradient_of"


def one_hot_cotangents(
    recording: Recording,
    rows: Tensor,
    index: int | tuple[int, ...] | Tensor,
    output: str | None,
) -> list[RowValues | None]:
    """One at outputs[rows[r], index] of one output tensor, zero elsewhere.

    Raises:
        InputError: there is no such output, or rows differ in shape.
        DtypeError: it is an integer.
    """
    position = _position(recording, output)
    store = recording.outputs[position]
    if store.ragged:
        raise InputError(
            f"{API}: rows of the output differ in shape, so no index fits all. Use "
            "run.pick(rows, lambda ys: sum(y[...] for y in ys))."
        )
    (values,) = store.tensors
    if not values.requires_grad:
        raise DtypeError(f"{API}: the output is {values.dtype}, which has no derivative")
    row_shape = values.shape[1:]
    hot = torch.zeros(len(rows), *row_shape, dtype=values.dtype, device=values.device)
    hot[(torch.arange(len(rows)), *_columns(index, len(rows), row_shape))] = 1
    stores: list[RowValues | None] = [None] * len(recording.outputs)
    stores[position] = RowValues(len(rows), hot)
    return stores


def _position(recording: Recording, output: str | None) -> int:
    names = recording.layout.names
    if output is None and len(names) == 1:
        return 0
    if output not in names:
        raise InputError(
            f"{API}: expected output= to name one of the model's outputs {list(names)}, got "
            f"{output!r}"
        )
    return names.index(output)


def _columns(
    index: int | tuple[int, ...] | Tensor, rows: int, row_shape: torch.Size
) -> tuple[int | Tensor, ...]:
    if isinstance(index, Tensor) and index.dim() == 1:
        if len(index) != rows or len(row_shape) != 1 or index.is_floating_point():
            raise InputError(
                f"{API}: expected a tensor index to hold one integer for each of the {rows} rows "
                f"of an output [N, K], got {index.dtype} {list(index.shape)} for rows of shape "
                f"{list(row_shape)}"
            )
        given: tuple[int | Tensor, ...] = (index.detach().cpu(),)
    else:
        given = tuple(index) if isinstance(index, tuple) else (int(index),)
    if len(given) != len(row_shape):
        raise InputError(
            f"{API}: expected an index with {len(row_shape)} entries, for rows of shape "
            f"{list(row_shape)}, got {index!r}"
        )
    for column, size in zip(given, row_shape, strict=True):
        low, high = torch.as_tensor(column).aminmax() if rows else (0, 0)
        if low < -size or high >= size:
            raise InputError(
                f"{API}: expected an index below {size}, for rows of shape {list(row_shape)}, got "
                f"{index!r}"
            )
    return given
