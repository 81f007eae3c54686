"""Inputs that lie in memory or in a mapped file: tensors and numpy arrays, read by row number."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pullback.inference.arguments import Arguments, Values, count_rows, to_tensor

Batch = tuple[Tensor, list[Tensor]]


class ArraySource:
    """Rows of tensors and arrays; a memory-mapped file is read a batch at a time."""

    reads = False  # nothing of the caller's runs when rows are fetched

    def __init__(self, arguments: Arguments, values: Sequence[Values]) -> None:
        self.arguments = arguments
        self.values = list(values)
        self.batch_size: int | None = None
        self._rows = count_rows(arguments, values)

    def __len__(self) -> int:
        return self._rows

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Row numbers and values of every batch, in order."""
        for start in range(0, len(self), batch_size):
            stop = min(start + batch_size, len(self))
            # Copied: a network that writes to its input would write to the caller's memory.
            yield torch.arange(start, stop), [to_tensor(value[start:stop]) for value in self.values]

    def fetch(self, rows: Tensor) -> list[Tensor]:
        """The values [R, *D] of rows [R]."""
        return [_rows_of(value, rows) for value in self.values]

    @property
    def in_memory(self) -> bool:
        """The rows are held here, not in a file that may be larger than memory."""
        return not any(isinstance(value, np.memmap) for value in self.values)


def _rows_of(value: Values, rows: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()[rows.to(value.device)]
    return torch.from_numpy(np.asarray(value[rows.numpy()]))
