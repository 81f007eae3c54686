"""What the close look at the first passes noticed: events, counted by line."""

from dataclasses import dataclass, field

from pullback.doctor.records import Cut
from pullback.doctor.sites import Site


@dataclass(frozen=True)
class Event:
    """One thing noticed; equal events of later passes are counted, not repeated.

    Attributes:
        kind: what was noticed; a rule asks for events by kind.
        site: the user's line, when it is known.
        path: variable, attribute, parameter or class it is about.
        cut: where a value left the graph.
        detail: names, such as those of parameters.
    """

    kind: str
    site: Site | None = None
    path: str = ""
    cut: Cut | None = None
    detail: tuple[str, ...] = ()


@dataclass
class Tally:
    """In which passes an event happened, and its latest numbers."""

    turns: set[int] = field(default_factory=set)
    numbers: dict[str, float] = field(default_factory=dict)


class Events:
    """Events with the passes in which they happened."""

    def __init__(self) -> None:
        self.tallies: dict[Event, Tally] = {}

    def add(self, event: Event, turn: int, **numbers: float) -> None:
        """Count an event."""
        tally = self.tallies.setdefault(event, Tally())
        tally.turns.add(turn)
        tally.numbers.update(numbers)

    def of(self, kind: str) -> list[tuple[Event, Tally]]:
        """All events of a kind, in the order in which they were first noticed."""
        return [(event, tally) for event, tally in self.tallies.items() if event.kind == kind]
