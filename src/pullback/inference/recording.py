"""What the first pass leaves behind: outputs by row, and how each row came to be."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.errors import ShapeError
from pullback.inference.randomness import RandomState
from pullback.inference.rows import RowValues
from pullback.inference.tree import Layout
from pullback.inference.verify import magnitudes, row_sizes


@dataclass(eq=False)
class Graph:
    """One run of some rows that autograd can walk back through.

    Attributes:
        inputs: the leaves whose gradient may be asked for, one for each of `wrt`.
        outputs: the network's tensors, flat.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(eq=False)
class RecordedBatch:
    """One batch of the first pass.

    Attributes:
        rows: its row numbers [R], in the order they were run in.
        random: the random streams before it; None if it drew nothing, so that its rows may be
            recomputed in any company.
        graph: its graph, if it was kept.
    """

    rows: Tensor
    random: RandomState | None = None
    graph: Graph | None = None


class Recording:
    """Outputs by row, and for each row its batch, its place in it and its inputs' fingerprint."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.batches: list[RecordedBatch] = []
        self.outputs: list[RowValues] = []
        self.sizes: list[Tensor] = []
        self.batch_of = torch.full((n,), -1)
        self.slot_of = torch.zeros(n, dtype=torch.long)
        self.group_of = torch.zeros(n, dtype=torch.long)
        self.fingerprints = torch.zeros(n, dtype=torch.long)
        self._layout: Layout | None = None
        self._groups: dict[tuple[torch.Size, ...], int] = {}
        self.dtypes: list[torch.dtype] = []
        self._versions: list[int] = []

    @property
    def layout(self) -> Layout:
        """The container of the outputs."""
        assert self._layout is not None, "nothing was recorded"
        return self._layout

    @property
    def done(self) -> Tensor:
        """Which rows were inferred, [N] booleans; all, unless the pass was interrupted."""
        return self.batch_of >= 0

    @property
    def groups(self) -> list[tuple[torch.Size, ...]]:
        """The shapes of rows there are, one shape an input."""
        return list(self._groups)

    def add(
        self,
        batch: RecordedBatch,
        values: Sequence[Tensor],
        fingerprints: Tensor,
        outputs: Sequence[Tensor],
        layout: Layout,
    ) -> None:
        """Take in one batch: its inputs' shapes and fingerprints, and its outputs.

        Raises:
            ShapeError: the outputs do not have one row a row of the inputs.
        """
        rows = batch.rows
        if self._layout is None:
            self._layout = layout
            self.outputs = [RowValues(self.n) for _ in outputs]
            self.sizes = [torch.zeros(self.n, dtype=torch.float64) for _ in outputs]
        check_rows(layout, outputs, len(rows), self.layout)
        shapes = tuple(value.shape[1:] for value in values)
        self.dtypes = [value.dtype for value in values]
        for store, sizes, output in zip(self.outputs, self.sizes, outputs, strict=True):
            store.put(rows, output.detach())
            sizes[rows] = magnitudes(output.detach())
        self.slot_of[rows] = torch.arange(len(rows))
        self.group_of[rows] = self._groups.setdefault(shapes, len(self._groups))
        self.fingerprints[rows] = fingerprints
        # Last, so that an interrupt leaves no row that points to a batch which is not there.
        self.batches.append(batch)
        self.batch_of[rows] = len(self.batches) - 1

    def settle(self, *, sized: bool = False) -> None:
        """Make the outputs leaves, once the pass is over; `sized`: as a saved run has them."""
        if not sized:
            self.sizes = [row_sizes(sizes) for sizes in self.sizes]
        for tensor in self.tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.requires_grad_()
        self._versions = [tensor._version for tensor in self.tensors]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold the outputs."""
        return [tensor for store in self.outputs for tensor in store.tensors]

    @property
    def written_to(self) -> bool:
        """Somebody wrote to the recorded outputs."""
        return self._versions != [tensor._version for tensor in self.tensors]

    def set_layout(self, layout: Layout) -> None:
        """Take the container that a saved run's network was seen to return."""
        if self._layout is not None:
            check_names(layout, self._layout)
        self._layout = layout

    def set_groups(
        self, groups: Sequence[Sequence[Sequence[int]]], dtypes: Sequence[torch.dtype]
    ) -> None:
        """Take the row shapes and dtypes of a saved run's inputs."""
        shapes = [tuple(torch.Size(shape) for shape in group) for group in groups]
        self._groups = {group: number for number, group in enumerate(shapes)}
        self.dtypes = list(dtypes)

    def zero_gradients(self, position: int, rows: Tensor, device: torch.device) -> RowValues:
        """Zeros for rows [R], in the shape of the input at `position`."""
        shapes, dtype = self.groups, self.dtypes[position]
        if len(shapes) == 1:
            shape = (len(rows), *shapes[0][position])
            return RowValues(len(rows), torch.zeros(shape, dtype=dtype, device=device))
        groups = self.group_of[rows].tolist()
        zeros = [torch.zeros(shapes[g][position], dtype=dtype, device=device) for g in groups]
        return RowValues(len(rows), zeros)


def check_names(layout: Layout, first: Layout) -> None:
    """Outputs have the tensors of the first batch.

    Raises:
        ShapeError: they do not.
    """
    if layout.names != first.names or not layout.names:
        raise ShapeError(
            f"infer: expected the model to return the tensors {list(first.names)} for every batch, "
            f"got {list(layout.names)}"
        )


def check_rows(layout: Layout, outputs: Sequence[Tensor], rows: int, first: Layout) -> None:
    """Outputs have one row a row of the inputs, and the tensors of the first batch.

    Raises:
        ShapeError: they do not.
    """
    check_names(layout, first)
    for name, output in zip(layout.names, outputs, strict=True):
        if output.dim() == 0 or len(output) != rows:
            raise ShapeError(
                f"infer: expected one row a sample in the model's output {name or 'y'}"
                f", [{rows}, ...], got {list(output.shape)}. Return outputs a row, and apply the "
                "loss to run.outputs afterwards; a value shared by all rows is not an output."
            )
