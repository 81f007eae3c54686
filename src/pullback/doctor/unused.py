"""Operations computed with a graph that no backward ever reached."""

import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pullback.doctor.cuts import tensors_in
from pullback.doctor.events import Event, Events
from pullback.doctor.sites import Site


@dataclass
class Operation:
    """One operation that made nodes, and what became of its result."""

    start: int
    end: int
    site: Site
    scalar: bool
    evaluated: bool
    consumed: bool = False
    read: bool = False


class Unused:
    """Operations of the pass under way and of the one before."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._results: dict[int, tuple[Any, Operation]] = {}

    def operation(
        self,
        kind: str,
        args: Any,
        kwargs: Any,
        result: Any,
        site: Site,
        start: int,
        end: int,
        evaluated: bool,
    ) -> None:
        """See one operation that has run."""
        for tensor in tensors_in(args, kwargs):
            entry = self._results.get(id(tensor))
            if entry is not None and entry[0]() is tensor:
                if end > start:
                    entry[1].consumed = True
                elif kind in ("read", "detach", "data", "detach_"):
                    entry[1].read = True
        if end > start and isinstance(result, Tensor):
            made = Operation(start, end, site, result.dim() == 0, evaluated)
            self.operations.append(made)
            self._results[id(result)] = (weakref.ref(result), made)

    def judge(self, visited: frozenset[int], end: int, events: Events) -> None:
        """Report what was made before `end` and never reached; newer ones may still be."""
        newer = []
        for made in self.operations:
            if made.start >= end:
                newer.append(made)
            elif (
                not made.consumed
                and not made.evaluated
                and visited.isdisjoint(range(made.start, made.end))
            ):
                kind = "unused-term" if made.scalar and not made.read else "unused"
                events.add(Event(kind, made.site), end)
        self.operations = newer
        self._results = {k: v for k, v in self._results.items() if v[0]() is not None}
