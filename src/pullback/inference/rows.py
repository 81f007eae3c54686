"""Values that belong to rows: one tensor [N, ...], or a list where rows differ in shape."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pullback.errors import InputError

Rows = int | slice | range | Sequence[int] | np.ndarray | Tensor | None


def row_numbers(api: str, rows: Rows, n: int) -> Tensor:
    """Row numbers 0..n-1 [R] from whatever selects rows; one number selects one row.

    Raises:
        InputError: not a selection of rows, or out of range.

    >>> row_numbers("pull", [-1, 0], 5)
    tensor([4, 0])
    >>> row_numbers("pull", slice(1, None, 2), 5)
    tensor([1, 3])
    """
    if rows is None:
        return torch.arange(n)
    if isinstance(rows, slice):
        rows = range(*rows.indices(n))
    index = torch.as_tensor(list(rows) if isinstance(rows, range) else rows).detach().cpu()
    if index.dtype == torch.bool and index.shape == (n,):
        return index.nonzero().flatten()
    if index.numel() == 0:
        return torch.zeros(0, dtype=torch.long)
    if index.dim() > 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError(
            f"{api}: expected rows as numbers, a slice, or a mask [{n}] of booleans, got "
            f"{index.dtype} {list(index.shape)}"
        )
    index = index.reshape(-1).long()
    if bool(((index < -n) | (index >= n)).any()):
        raise InputError(
            f"{api}: expected row numbers below {n}, got {int(index.min())} to {int(index.max())}"
        )
    return index % n


def flat(values: Tensor) -> Tensor:
    """Values [R, ...] as [R, D], also where D is zero, or there is no such axis."""
    return values.flatten(1) if values.dim() > 1 else values[:, None]


class RowValues:
    """One value a row, filled batch by batch; uniform until a row of another shape arrives.

    Args:
        n: how many rows.
        value: the values, if they are there already.
        blank: rows that were not put in read as NaN; else whoever puts keeps count.

    Attributes:
        value: a tensor [N, ...], or a list of N tensors; None until something is put in.
    """

    def __init__(
        self, n: int, value: Tensor | list[Tensor] | None = None, *, blank: bool = True
    ) -> None:
        self.n = n
        self.value = value
        self._blank = blank

    @property
    def ragged(self) -> bool:
        """Rows differ in shape."""
        return isinstance(self.value, list)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold the values."""
        if self.value is None:
            return []
        return self.value if isinstance(self.value, list) else [self.value]

    def put(self, rows: Tensor, values: Tensor) -> None:
        """Write values [R, ...] to rows [R]."""
        if self.value is None:
            self.value = _unfilled(self.n, values, self._blank)
        if isinstance(self.value, Tensor) and self.value.shape[1:] != values.shape[1:]:
            self.value = [row.clone() for row in self.value]
        if isinstance(self.value, Tensor):
            self.value.index_copy_(0, rows.to(self.value.device), values)
        else:
            for row, value in zip(rows.tolist(), values, strict=True):
                self.value[row] = value.clone()

    def take(self, rows: Tensor) -> Tensor:
        """The values [R, ...] of rows [R], which have one shape; without their history."""
        if isinstance(self.value, Tensor):
            return self.value.detach()[rows.to(self.value.device)]
        assert self.value is not None
        return torch.stack([self.value[row].detach() for row in rows.tolist()])

    def select(self, rows: Tensor) -> Tensor | list[Tensor]:
        """The values of rows [R], which may differ in shape, as what `value` is."""
        if isinstance(self.value, Tensor):
            return self.take(rows)
        assert self.value is not None
        return [self.value[row].detach().clone() for row in rows.tolist()]

    def gradients(self) -> "RowValues | None":
        """What losses left in .grad of the values; None if none reached them."""
        grads = [tensor.grad for tensor in self.tensors]
        if all(grad is None for grad in grads):
            return None
        filled = [
            torch.zeros_like(tensor) if grad is None else grad.detach()
            for tensor, grad in zip(self.tensors, grads, strict=True)
        ]
        return RowValues(self.n, filled if self.ragged else filled[0])

    def nonzero(self) -> Tensor:
        """Which rows hold something else than zeros, [N] booleans; NaN is not zero."""
        if isinstance(self.value, Tensor):
            return flat(self.value != 0).any(1).cpu()
        return torch.tensor([bool((row != 0).any()) for row in self.tensors])


def _unfilled(n: int, like: Tensor, blank: bool) -> Tensor:
    layout = torch.contiguous_format
    if like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last):
        layout = torch.contiguous_format if like.is_contiguous() else torch.channels_last
    shape = (n, *like.shape[1:])
    made = torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)
    if blank:
        # So that a row whose value never came cannot pass for a number.
        made.fill_(float("nan") if like.is_floating_point() or like.is_complex() else 0)
    return made
