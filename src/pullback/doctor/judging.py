"""At the end of a pass: which cuts and which retained graphs mattered."""

from collections.abc import Collection

from pullback.doctor.cuts import Cuts, Use
from pullback.doctor.events import Event, Events
from pullback.doctor.standing import Standing


def judge_cuts(
    cuts: Cuts,
    visited: frozenset[int],
    end: int,
    sums: Collection[int],
    names: dict[int, str],
    events: Events,
) -> None:
    """Turn cuts whose value came back into a backwarded graph into events.

    Uses at or after `end` belong to a pass that has not run its backward yet, and wait.
    """
    for use in cuts.uses:
        if use.start >= end:
            continue
        numbers = range(use.start, use.end)
        if visited.isdisjoint(numbers) or use.cut.source in visited:
            continue
        turn = use.cut.turn
        cut = cuts.named(use.cut, names)
        if _is_dead_term(use) and not sums_disjoint(sums, numbers):
            events.add(Event("dead-term", use.site, cut=cut), turn)
        elif cut.kind == "detach_":
            events.add(Event("detached-in-place", use.site, cut=cut), turn)
        elif cut.kind == "data" and cut.leaf and use.kind != "in-place":
            events.add(Event("data-in-graph", use.site, cut=cut), turn)
        elif cut.kind == "detach" and not cut.leaf:
            events.add(Event("detached", use.site, cut=cut), turn)
    cuts.forget(end)


def sums_disjoint(sums: Collection[int], numbers: range) -> bool:
    """Whether none of the numbers is one of the last sums of a loss."""
    return not any(number in sums for number in numbers)


def _is_dead_term(use: Use) -> bool:
    return use.kind == "sum" and use.scalar and use.cut.kind != "comparison"


def judge_retained(standing: Standing, events: Events) -> None:
    """A graph that was kept and never visited again was kept for nothing."""
    for trip, later in standing.unjudged():
        if trip.retain and not trip.create and later:
            seen = set(trip.visited)
            again = any(
                not (seen.isdisjoint(other.visited) and seen.isdisjoint(other.under))
                for other in later
            )
            if not again:
                events.add(Event("retained", trip.site), trip.turn)
