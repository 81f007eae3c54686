"""What `inputs` may be, and which reader stands behind it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from pullback.errors import InputError
from pullback.inference.arguments import Arguments, read_arguments
from pullback.inference.arrays import ArraySource, Batch
from pullback.inference.datasets import ItemSource, LoaderSource


class Source(Protocol):
    """Rows that can be read in order once, and again by number.

    Attributes:
        arguments: how the network is called with them.
        values: the inputs, or one item or batch of them, to look dtypes up in.
        batch_size: the batches it insists on; None leaves them to the caller.
        reads: code of the caller's runs when rows are read.
        in_memory: the rows are held, so that they can be saved.
    """

    arguments: Arguments
    values: list[Any]
    batch_size: int | None
    reads: bool

    @property
    def in_memory(self) -> bool: ...  # noqa: D102

    def __len__(self) -> int: ...

    def batches(self, batch_size: int) -> Iterator[Batch]: ...  # noqa: D102

    def fetch(self, rows: Tensor) -> list[Tensor]: ...  # noqa: D102


def open_source(inputs: Any, unpack: Callable[[Any], Any] | None) -> Source:
    """A reader for inputs.

    Raises:
        InputError: inputs are none of the kinds that rows can be read from again.
    """
    if isinstance(inputs, DataLoader):
        return LoaderSource(inputs, unpack or _as_is)
    if isinstance(inputs, Tensor | np.ndarray | tuple | Mapping):
        return ArraySource(*read_arguments(inputs if unpack is None else unpack(inputs)))
    random_access = hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")
    if isinstance(inputs, IterableDataset) or not random_access:
        raise InputError(
            "infer: expected a tensor, a numpy array, a tuple or dict of them, a list of rows, a "
            f"map-style Dataset or a DataLoader, got {type(inputs).__name__}. Rows are read again "
            "later, so something that can only be walked once (a generator) will not do: list(it)."
        )
    return ItemSource(inputs, unpack or _as_is)


def _as_is(item: Any) -> Any:
    return item
