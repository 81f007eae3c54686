"""What tensors with an old graph are still held, and whether it grows."""

from itertools import pairwise
from typing import Any, NamedTuple

import torch

from pullback.doctor import _torch
from pullback.doctor.owners import Held, rank
from pullback.doctor.walk import Walk, walk

NODE_BYTES = 750  # measured: about 0.75 KiB a node, whatever the width
_LIMIT = 4000


class Sample(NamedTuple):
    """How much one holder kept at one moment."""

    turn: int
    length: int
    nodes: int
    live: int


def containers_of(path: str, lengths: dict[str, int]) -> list[str]:
    """Containers around a path, the outermost first."""
    return [path[:at] for at, letter in enumerate(path) if letter == "[" and path[:at] in lengths]


class Growth:
    """Samples by holder: a container, or the variable itself."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.scalars: dict[str, bool] = {}

    def sample(self, held: Held, before: int, turn: int, *, repeats: bool = True) -> None:
        """Measure every holder of tensors whose graph reaches back to before `before`.

        Args:
            held: what variables lead to now.
            before: sequence number at which the pass began.
            turn: number of the sample; a holder is measured once for each.
            repeats: whether to keep a measurement equal to the last one.
        """
        groups: dict[str, list[Any]] = {}
        for path, tensor in held.tensors:
            if tensor.grad_fn is None:
                continue
            outer = containers_of(path, held.lengths)
            for holder in outer or [path]:
                groups.setdefault(holder, []).append(tensor.grad_fn)
                self.scalars[holder] = tensor.dim() == 0
        parameters = {t.data_ptr() for _, t in held.tensors if t.is_leaf and t.requires_grad}
        for holder, nodes in groups.items():
            found = walk(nodes, limit=_LIMIT)
            if not any(sequence < before for sequence in found.nodes.values()):
                continue
            sample = Sample(
                turn, held.lengths.get(holder, 0), len(found.nodes), _live(found, parameters)
            )
            series = self.samples.setdefault(holder, [])
            same = bool(series) and series[-1][1:] == sample[1:]
            if (not series or series[-1].turn != turn) and (repeats or not same):
                series.append(sample)

    def growing(self) -> list[tuple[str, bool, list[Sample]]]:
        """Holders that grew three times in a row: path, whether a container, samples."""
        grown: list[tuple[str, bool, list[Sample]]] = []
        for path in sorted(self.samples, key=rank):
            series = self.samples[path][-3:]
            if len(series) == 3 and _rises([sample.nodes for sample in series]):
                grown.append((path, _rises([sample.length for sample in series]), series))
        # Of a container and what holds it, the one whose own length grows is the fault.
        grown.sort(key=lambda found: not found[1])
        found: list[tuple[str, bool, list[Sample]]] = []
        for path, container, series in grown:
            known = any(
                series == other or path.startswith(name + "[") or name.startswith(path + "[")
                for name, _, other in found
            )
            if not known:
                found.append((path, container, series))
        return found


def _rises(numbers: list[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def rate(series: list[Sample]) -> tuple[float, float]:
    """KiB a pass, and live bytes of activations a pass."""
    first, last = series[0], series[-1]
    turns = max(last.turn - first.turn, 1)
    live = (last.live - first.live) / turns
    return ((last.nodes - first.nodes) * NODE_BYTES / turns + live) / 1024, live


def _live(found: Walk, parameters: set[int]) -> int:
    storages: dict[int, int] = {}
    for node in found.nodes:
        for tensor in _torch.saved_state(node)[1]:
            if tensor.layout is torch.strided and tensor.data_ptr() not in parameters:
                storages[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    return sum(storages.values())
