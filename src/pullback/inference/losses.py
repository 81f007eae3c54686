"""The cheap half: a loss on some rows of the outputs becomes a cotangent a row."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.errors import DtypeError, InputError, ShapeError, UnconnectedInputError
from pullback.inference.recording import Recording
from pullback.inference.rows import RowValues
from pullback.inference.tree import flatten


def loss_cotangents(
    recording: Recording,
    rows: Tensor,
    loss_fn: Callable[..., Tensor],
    per_row_args: Sequence[Any],
) -> tuple[list[RowValues | None], Tensor]:
    """∂loss/∂outputs[rows] for each output tensor, and the loss.

    Raises:
        InputError: an argument does not have one value a row.
        UnconnectedInputError: the loss does not depend on the outputs.
    """
    with torch.enable_grad():
        picked = [RowValues(len(rows), store.select(rows)) for store in recording.outputs]
        leaves = [t for store in picked for t in store.tensors if t.is_floating_point()]
        for leaf in leaves:
            leaf.requires_grad_()
        given = [_rows_of(arg, rows, recording.n) for arg in per_row_args]
        loss = loss_fn(recording.layout.fill([store.value for store in picked]), *given)
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise UnconnectedInputError(
                "run.pick: the loss does not depend on the outputs that loss_fn was given (a "
                "constant, an argmax, or a detach). There is no gradient, not even a zero one."
            )
        gradients = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
    found = {id(leaf): g for leaf, g in zip(leaves, gradients, strict=True) if g is not None}
    return [_gathered(store, found) for store in picked], loss.detach()


def given_cotangents(recording: Recording, rows: Tensor, cotangents: Any) -> list[RowValues | None]:
    """Cotangents as handed to `pull`, checked against the outputs.

    Raises:
        InputError, ShapeError, DtypeError: they do not fit outputs[rows].
    """
    if any(store.ragged for store in recording.outputs):
        if len(recording.outputs) > 1 or not isinstance(cotangents, list | tuple):
            raise InputError(
                "run.pull: expected a list with one cotangent a row, since rows differ in shape; "
                "with several outputs use run.pick(rows, loss_fn)"
            )
        return [RowValues(len(rows), list(cotangents))]
    tensors, layout = flatten(cotangents)
    if layout.names != recording.layout.names:
        raise InputError(
            f"run.pull: expected cotangents in the container of run.outputs, with the tensors "
            f"{list(recording.layout.names)}, got {list(layout.names)}"
        )
    stores: list[RowValues | None] = []
    for name, store, given in zip(layout.names, recording.outputs, tensors, strict=True):
        (output,) = store.tensors
        if not output.requires_grad:
            stores.append(None)  # an integer output carries no cotangent
            continue
        wanted = [len(rows), *output.shape[1:]]
        if list(given.shape) != wanted:
            raise ShapeError(
                f"run.pull: expected cotangents {name} {wanted}, one for each of the rows, got "
                f"{list(given.shape)}"
            )
        if given.dtype != output.dtype:
            raise DtypeError(
                f"run.pull: expected cotangents {name} of the outputs' dtype {output.dtype}, got "
                f"{given.dtype}: the gradient would be rounded silently. Use .to({output.dtype})."
            )
        stores.append(RowValues(len(rows), given.detach().to(output.device)))
    return stores


def _gathered(store: RowValues, found: dict[int, Tensor]) -> RowValues | None:
    gradients = [found.get(id(tensor)) for tensor in store.tensors]
    if all(gradient is None for gradient in gradients):
        return None
    filled = [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(store.tensors, gradients, strict=True)
    ]
    return RowValues(store.n, filled if store.ragged else filled[0])


def _rows_of(arg: Any, rows: Tensor, n: int) -> Any:
    if not hasattr(arg, "__len__") or len(arg) != n:
        got = f"{len(arg)}" if hasattr(arg, "__len__") else type(arg).__name__
        raise InputError(
            f"run.pick: expected each further argument to have one value for each of all {n} rows, "
            f"so that the pick's own can be taken from it, got {got}. Close over anything else: "
            "run.pick(rows, lambda y: loss(y, it))."
        )
    if isinstance(arg, Tensor):
        return arg[rows.to(arg.device)]
    if isinstance(arg, np.ndarray):
        return torch.from_numpy(arg[rows.numpy()])
    return [arg[row] for row in rows.tolist()]
