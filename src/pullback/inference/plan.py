"""Which rows are recomputed together, and how often each graph is walked."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.inference.recording import RecordedBatch, Recording


@dataclass(frozen=True, eq=False)
class Walk:
    """One trip back through a graph.

    Attributes:
        positions: which of the asked-for rows it serves [R].
        slots: their places in the graph [R], all different.
    """

    positions: Tensor
    slots: Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """One graph and the walks through it.

    Attributes:
        rows: the rows in the graph, in order.
        batch: the recorded batch it repeats; None where the rows stand on their own.
        kept: the batch's graph was kept, and is walked instead of a new one.
    """

    rows: Tensor
    walks: tuple[Walk, ...]
    batch: RecordedBatch | None = None
    kept: bool = False


@dataclass(frozen=True)
class Rules:
    """What decides between one plan and another.

    Attributes:
        batch_size: how many free rows are recomputed together, at most.
        coupled: a batch of the first pass is recomputed whole, and each request walked alone,
            since its losses reach the other rows of the batch.
        use_kept: kept graphs may be walked.
    """

    batch_size: int
    coupled: bool
    use_kept: bool = True


def plan(recording: Recording, rows: Tensor, owners: Tensor, rules: Rules) -> list[Task]:
    """Tasks that serve rows [R], each asked for by the request owners [R].

    Rows may repeat: each position has its own answer. A batch that drew random numbers is repeated
    whole, since its masks belong to places in the batch. A kept graph is walked where at least half
    of its rows are asked for: fewer are cheaper to recompute (a walk costs about one forward).
    """
    free: list[Tensor] = []
    tasks: list[Task] = []
    for number, positions in _split_by(recording.batch_of[rows]):
        batch = recording.batches[number]
        kept = rules.use_kept and batch.graph is not None and 2 * len(positions) >= len(batch.rows)
        if not (kept or rules.coupled or batch.random is not None):
            free.append(positions)
            continue
        key = owners[positions] if rules.coupled else _occurrence(rows[positions])
        layers = [positions[inside] for _, inside in _split_by(key)]
        walks = tuple(Walk(layer, recording.slot_of[rows[layer]]) for layer in layers)
        tasks.append(Task(batch.rows, walks, batch, kept))
    if free:
        tasks += _free_tasks(recording, rows, torch.cat(free).sort().values, rules.batch_size)
    return tasks


def _free_tasks(
    recording: Recording, rows: Tensor, positions: Tensor, batch_size: int
) -> Iterator[Task]:
    for _, inside in _split_by(recording.group_of[rows[positions]]):
        group = positions[inside]
        # Even parts: 65 rows are 33 and 32, not 64 and a lonely one.
        parts = group.tensor_split(-(-len(group) // batch_size))
        if any(_in_old_company(recording, rows[part]) for part in parts):
            # Rows that secretly depend on their batch come out as recorded in the same company;
            # in another they do not, and comparing them tells.
            parts = group.roll(len(parts[0]) // 2).tensor_split(max(2, len(parts)))
        for part in parts:
            yield Task(rows[part], (Walk(part, torch.arange(len(part))),))


def _in_old_company(recording: Recording, rows: Tensor) -> bool:
    """The rows are exactly those of one batch of the first pass."""
    old = recording.batches[int(recording.batch_of[rows[0]])].rows
    return len(old) == len(rows) > 1 and torch.equal(old.sort().values, rows.sort().values)


def _split_by(key: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each value in key [R] with the positions that hold it, in order."""
    order = key.argsort(stable=True)
    values, counts = key[order].unique_consecutive(return_counts=True)
    yield from zip(values.tolist(), order.split(counts.tolist()), strict=True)


def _occurrence(rows: Tensor) -> Tensor:
    """0 for the first time a row appears, 1 for the second, and so on."""
    count = torch.zeros_like(rows)
    for _, positions in _split_by(rows):
        count[positions] = torch.arange(len(positions))
    return count
