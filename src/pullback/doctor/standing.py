"""What stands from pass to pass: trips, and old nodes that are reached again and again."""

from pullback.doctor import _torch
from pullback.doctor.events import Event, Events
from pullback.doctor.owners import Held
from pullback.doctor.records import Backward
from pullback.doctor.sites import Site
from pullback.doctor.walk import Walk

INDEXING = ("Select", "Index", "Slice", "Unbind", "Split", "Gather", "Take", "Narrow", "Unsafe")


class Standing:
    """Trips of the examined passes, and the old nodes at which they left their pass."""

    def __init__(self) -> None:
        self.leaves: set[int] = set()
        self.backwards: list[Backward] = []
        self.end = 0
        self._old: dict[int, list[Backward]] = {}
        self._names: dict[int, str] = {}
        self._indexed: set[int] = set()
        self._judged = 0

    def backward(self, backward: Backward, found: Walk, here: Held) -> None:
        """Note at which old nodes a trip leaves its pass."""
        self.leaves |= backward.leaves
        for edge in found.below:
            old = _torch.sequence_of(edge.producer)
            paths = here.paths_of(edge.producer, edge.number)
            if paths:
                self._names[old] = paths[0]
            if edge.consumer.name().startswith(INDEXING):
                self._indexed.add(old)

    def ran(self, backward: Backward) -> None:
        """Keep a trip that ran."""
        if len(self.backwards) < 200:
            self.backwards.append(backward)
            for old in backward.under:
                self._old.setdefault(old, []).append(backward)
        if backward.closes:
            self.end = _torch.next_sequence()

    def take(self) -> frozenset[int]:
        """Every node reached so far, new or old."""
        reached: set[int] = set()
        for backward in self.backwards:
            reached.update(backward.visited, backward.under)
        return frozenset(reached)

    def unjudged(self) -> list[tuple[Backward, list[Backward]]]:
        """Trips that have not been judged, each with those that came after."""
        start = self._judged
        self._judged = max(len(self.backwards) - 1, 0)
        return [(self.backwards[i], self.backwards[i + 1 :]) for i in range(start, self._judged)]

    def finish(self, events: Events) -> None:
        """Old nodes reached three times: values of old weights, or a graph walked row by row."""
        for old, trips in self._old.items():
            turns = {trip.turn for trip in trips}
            if len(turns) < 3:
                continue
            site: Site = trips[-1].site
            path = self._names.get(old, "")
            # A sum that starts from an old constant keeps nothing alive that can be freed, so
            # only optimizer steps in between make it a fault.
            if trips[-1].steps > trips[0].steps:
                events.add(
                    Event("stale", site, path, detail=(str(old),)),
                    trips[-1].turn,
                    passes=len(turns),
                )
            elif all(trip.retain for trip in trips) and old in self._indexed:
                kind = "rows-by-grad" if trips[-1].of_grad else "rows"
                events.add(Event(kind, site, path), trips[-1].turn, passes=len(turns))
