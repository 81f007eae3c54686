"""Rows are run again with a graph, as they were run without one, and compared with the record."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.errors import ReplayError
from pullback.inference.arguments import Arguments
from pullback.inference.diagnose import mismatch
from pullback.inference.fingerprint import row_fingerprints
from pullback.inference.plan import Task
from pullback.inference.randomness import kept_streams
from pullback.inference.recording import Graph, Recording, check_rows
from pullback.inference.rows import flat
from pullback.inference.setting import Setting
from pullback.inference.sources import Source
from pullback.inference.tree import Layout, flatten
from pullback.inference.verify import Tolerance, differences
from pullback.inference.weights import ModelRecord


@dataclass(frozen=True, eq=False)
class Network:
    """The callable and how it is called; the one entry point of first pass and recomputing."""

    model: Callable[..., Any]
    arguments: Arguments
    setting: Setting

    def outputs(self, values: Sequence[Tensor]) -> tuple[list[Tensor], Layout]:
        """Run a batch in the grad mode that is on."""
        with self.setting.running():
            return flatten(self.arguments.call(self.model, values))

    def graph(self, values: Sequence[Tensor], *, inputs: bool = True) -> tuple[Graph, Layout]:
        """Run a batch with a graph, down to its inputs if asked for."""
        with torch.enable_grad():
            given, leaves = list(values), []
            for i in self.arguments.wrt if inputs else ():
                leaves.append(values[i].detach().requires_grad_())
                # A leaf cannot be written to, and networks may begin with an in-place layer.
                given[i] = leaves[-1].clone()
            tensors, layout = self.outputs(given)
            return Graph(leaves, tensors), layout


@dataclass(frozen=True, eq=False)
class Replay:
    """Everything that running recorded rows again takes.

    Attributes:
        smallest: rows recomputed together, at the least; fewer are filled up with themselves,
            since kernels may round a handful of rows in another way than a batch.
    """

    network: Network
    source: Source
    recording: Recording
    record: ModelRecord
    tolerance: Tolerance
    smallest: int
    coupled: bool

    @contextmanager
    def opened(self, api: str, tasks: Sequence[Task]) -> Iterator[None]:
        """Check cheaply what can be checked at once, and give back whatever recomputing moves.

        Raises:
            ReplayError: the weights or the recorded outputs were written to.
        """
        if self.recording.written_to:
            raise ReplayError(
                f"{api}: run.outputs was written to since infer, so recomputed outputs cannot be "
                "compared with it. Work on a copy: run.outputs.detach().clone()."
            )
        # Where nothing is recomputed, nothing but the weights' bits can show a change.
        walks_kept = any(task.kept for task in tasks)
        self._check_weights(api, self.record.changed() if walks_kept else self.record.touched())
        setting = self.network.setting
        with kept_streams(setting.device), self.record.as_recorded(), setting.without_autocast():
            yield

    def _check_weights(self, api: str, changed: Sequence[str]) -> None:
        """Raise ReplayError naming the weights that changed, if any did."""
        if changed:
            raise ReplayError(
                f"{api}: the weights changed since infer ({_some(changed)}), so a gradient would "
                "belong to another network. Restore them (model.load_state_dict(...)), or call "
                "infer again."
            )

    @contextmanager
    def graph(self, api: str, task: Task, *, inputs: bool = True) -> Iterator[Graph]:
        """The graph of a task's rows, verified, to be walked inside.

        Raises:
            ReplayError: inputs or outputs are not what was recorded.
            CoupledRowsError: they are, but only in the company they were recorded in.
        """
        if task.kept and task.batch is not None and task.batch.graph is not None:
            yield task.batch.graph
            return
        rows = self.rows_of(task)
        # Walked before the buffers are given back: a graph may have saved them.
        with self.record.once_more():
            graph = self.run(api, rows, task, inputs=inputs)
            off = self.compare(rows, graph.outputs)
            off[rows != self._asked(task, len(rows))] = 0.0  # stand-ins are compared nowhere
            if not bool((off > self.tolerance.allowed).any()):
                yield graph
                return
        raise mismatch(self, api, task, rows, off)

    def rows_of(self, task: Task) -> Tensor:
        """The rows to run: a task's own, and stand-ins where their value must not matter."""
        if task.batch is None:
            missing = max(self.smallest - len(task.rows), 0)
            return torch.cat([task.rows, task.rows[torch.arange(missing) % len(task.rows)]])
        rows = task.rows.clone()
        if not self.coupled and task.walks:
            # Rows that nobody asked for hold zeros in the cotangents, but 0 · NaN is NaN.
            asked = torch.cat([walk.slots for walk in task.walks])
            broken = ~self._finite(rows)
            broken[asked] = False
            rows[broken] = rows[asked[0]]
        return rows

    def run(self, api: str, rows: Tensor, task: Task, *, inputs: bool = True) -> Graph:
        """Read rows again, check that they are the same, and run them."""
        values = self.source.fetch(rows)
        self._check_inputs(api, rows, values)
        if task.batch is not None and task.batch.random is not None:
            task.batch.random.install()
        graph, layout = self.network.graph(self.network.setting.move(values), inputs=inputs)
        check_rows(layout, graph.outputs, len(rows), self.recording.layout)
        return graph

    def compare(self, rows: Tensor, outputs: Sequence[Tensor]) -> Tensor:
        """How far each row [R] is off, the worst over all outputs."""
        worst = torch.zeros(len(rows), dtype=torch.float64)
        stores = zip(self.recording.outputs, self.recording.sizes, outputs, strict=True)
        for store, sizes, output in stores:
            off = differences(output.detach(), store.take(rows), sizes[rows])
            worst = torch.maximum(worst, off)
        return worst

    def _asked(self, task: Task, length: int) -> Tensor:
        padding = task.rows[torch.arange(length - len(task.rows)) % len(task.rows)]
        return torch.cat([task.rows, padding])

    def _finite(self, rows: Tensor) -> Tensor:
        finite = torch.ones(len(rows), dtype=torch.bool)
        for store in self.recording.outputs:
            taken = store.take(rows)
            finite &= flat(taken).isfinite().all(1).cpu()
        return finite

    def _check_inputs(self, api: str, rows: Tensor, values: Sequence[Tensor]) -> None:
        prints = row_fingerprints(*values)
        changed = rows[prints != self.recording.fingerprints[rows]].unique()
        if len(changed):
            remedy = (
                "the data set gives another item each time it is read (random augmentation?). Make "
                "reading repeatable: draw the augmentation once, or seed it by the row's number"
                if self.source.reads
                else "they were written to. Restore them, or call infer again"
            )
            raise ReplayError(
                f"{api}: the inputs of rows {_some(changed.tolist())} are not those that infer "
                f"read: {remedy}."
            )


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(str(item) for item in items[:3])
    return shown if len(items) <= 3 else f"{shown} and {len(items) - 3} more"
