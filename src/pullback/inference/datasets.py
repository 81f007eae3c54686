"""Inputs that are read item by item: lists, map-style datasets and data loaders."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, default_collate

from pullback.errors import InputError
from pullback.inference.arguments import Arguments, count_rows, read_arguments
from pullback.inference.arrays import Batch

Unpack = Callable[[Any], Any]


class ItemSource:
    """A list or a map-style dataset; rows of one shape are batched together, never padded."""

    reads = True
    in_memory = False

    def __init__(self, items: Any, unpack: Unpack) -> None:
        self._items = items
        self._unpack = unpack
        self.batch_size: int | None = None
        if not len(items):
            raise InputError("infer: expected at least one row, got an empty data set")
        self.arguments, self.values = self._read(0)

    def __len__(self) -> int:
        return len(self._items)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Each row is read once: it waits for others of its shape until they are a batch."""
        waiting: dict[tuple[torch.Size, ...], list[tuple[int, list[Tensor]]]] = {}
        for row in range(len(self)):
            _, values = self._read(row)
            group = waiting.setdefault(tuple(value.shape for value in values), [])
            group.append((row, values))
            if len(group) == batch_size:
                yield _stacked(group)
                group.clear()
        for group in waiting.values():
            if group:
                yield _stacked(group)

    def fetch(self, rows: Tensor) -> list[Tensor]:
        """The values [R, *D] of rows [R], which have one shape."""
        return _stacked([(row, self._read(row)[1]) for row in rows.tolist()])[1]

    def _read(self, row: int) -> tuple[Arguments, list[Tensor]]:
        arguments, values = read_arguments(_unwrapped(self._unpack(self._items[row])))
        return arguments, [torch.as_tensor(value).detach() for value in values]


class LoaderSource:
    """A data loader over a map-style dataset; rows are numbered in the order it yields them."""

    reads = True
    in_memory = False

    def __init__(self, loader: DataLoader, unpack: Unpack) -> None:
        self._loader = loader
        self._unpack = unpack
        self._items = _read_twice(loader)
        self._flat = [item for items in self._items for item in items]
        self._batch_of = torch.tensor([b for b, row in enumerate(self._items) for _ in row])
        sizes = [0, *(len(items) for items in self._items)]
        self._starts = torch.tensor(sizes).cumsum(0)
        self.batch_size: int | None = max(sizes)
        self.arguments, self.values = self._collate(self._items[0])

    def __len__(self) -> int:
        return len(self._batch_of)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """The loader's own batches, read by its own workers."""
        for number, batch in enumerate(self._loader):
            start, stop = self._starts[number : number + 2].tolist()
            _, values = self._checked(batch, stop - start)
            yield torch.arange(start, stop), values

    def fetch(self, rows: Tensor) -> list[Tensor]:
        """The values [R, *D] of rows [R], read in this process."""
        if self._loader.collate_fn is default_collate:
            return self._collate([self._flat[row] for row in rows.tolist()])[1]
        # A collate function of the caller's may pad to the longest of its batch: only the whole
        # batch gives a row back as it was.
        numbers = self._batch_of[rows]
        batches = {b: self._collate(self._items[b])[1] for b in numbers.unique().tolist()}
        slots = (rows - self._starts[numbers]).tolist()
        parts = [
            [value[slot] for value in batches[number]]
            for number, slot in zip(numbers.tolist(), slots, strict=True)
        ]
        return [torch.stack(column) for column in zip(*parts, strict=True)]

    def _collate(self, items: Sequence[Any]) -> tuple[Arguments, list[Tensor]]:
        dataset = self._loader.dataset
        if hasattr(dataset, "__getitems__"):
            read = dataset.__getitems__(list(items))
        else:
            read = [dataset[item] for item in items]
        return self._checked(self._loader.collate_fn(read), len(items))

    def _checked(self, batch: Any, expected: int) -> tuple[Arguments, list[Tensor]]:
        arguments, arrays = read_arguments(_unwrapped(self._unpack(batch)))
        values = [torch.as_tensor(value).detach() for value in arrays]
        if count_rows(arguments, values) != expected:
            raise InputError(
                f"infer: expected one row an item, but collating {expected} items gave "
                f"{len(values[0])} rows. Let the collate function return one row an item."
            )
        return arguments, values


def _read_twice(loader: DataLoader) -> list[list[Any]]:
    """The items of every batch, asked for twice: an order that changes names no row.

    Raises:
        InputError: the loader shuffles, streams, or does not batch.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise InputError(
            "infer: expected a DataLoader that batches a map-style Dataset, so that a row can be "
            "read again by its number. Put a stream into a list or an array first."
        )
    shuffles = isinstance(loader.sampler, RandomSampler)
    order = [] if shuffles else [list(items) for items in loader.batch_sampler]
    if shuffles or order != [list(items) for items in loader.batch_sampler]:
        raise InputError(
            "infer: expected a DataLoader that yields the same rows in the same order each time, "
            "but this one shuffles: rows could not be read again. Use DataLoader(..., "
            "shuffle=False) and pick at random from run.outputs."
        )
    if not order:
        raise InputError("infer: expected at least one batch, got an empty DataLoader")
    return order


def _unwrapped(item: Any) -> Any:
    """A data set of single tensors (TensorDataset) yields tuples of one: f(x) all the same."""
    return item[0] if isinstance(item, tuple | list) and len(item) == 1 else item


def _stacked(group: Sequence[tuple[int, list[Tensor]]]) -> Batch:
    rows = torch.tensor([row for row, _ in group])
    return rows, [torch.stack(c) for c in zip(*(values for _, values in group), strict=True)]
