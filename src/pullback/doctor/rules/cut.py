"""Terms of a loss that are cut off from what they should train."""

from collections.abc import Iterator

from pullback.doctor.events import Events
from pullback.doctor.examination import Examination
from pullback.doctor.findings import Finding
from pullback.doctor.rules.disconnected import FIXES, how

RULES = {
    "dead-term": "A term of the loss has no graph and trains nothing.",
    "detached-in-place": "detach_() cuts a graph that no backward has used yet.",
    "data-in-graph": "`.data` takes a weight out of a graph that should train it.",
    "update-through-data": "An update through `.data` is invisible to the outer gradient.",
    "detached-value": "A value is detached before any backward has used its graph.",
}


def findings(events: Events, examination: Examination) -> Iterator[Finding]:
    """Findings about values that left the graph and came back as constants."""
    for event, tally in events.of("dead-term"):
        if event.cut is not None:
            yield Finding(
                "dead-term",
                "warning",
                f"a term of the loss trains nothing: {how(event.cut.kind)} cut it off",
                cause=event.cut.kind,
                made=str(event.cut.site),
                used=str(event.site),
                fix=f"{FIXES[event.cut.kind]} ({event.cut.site})",
                avoid="a larger weight for the term: it has no gradient to enlarge",
                numbers={"passes": len(tally.turns)},
            )
    for event, tally in events.of("detached-in-place"):
        cut = event.cut
        if cut is not None:
            names = f" ({', '.join(cut.reached)})" if cut.reached else ""
            yield Finding(
                "detached-in-place",
                "warning",
                f"detach_() cut off a graph that reached {cut.leaves} tensors{names} before any "
                "backward used it; the term computed from it trains fewer than it should",
                path=", ".join(cut.reached),
                cause="detach_",
                made=str(cut.site),
                used=str(event.site),
                fix=f"remove the `.detach_()` ({cut.site}); if it silenced a second-backward "
                "error, clear the state that carries the old graph instead",
                numbers={"tensors": cut.leaves, "passes": len(tally.turns)},
            )
    for event, tally in events.of("data-in-graph"):
        if event.cut is not None:
            yield Finding(
                "data-in-graph",
                "warning",
                "`.data` of a weight is used in a graph: this use of the weight is not trained",
                cause="data",
                made=str(event.cut.site),
                used=str(event.site),
                fix=f"use the weight itself, not its `.data` ({event.cut.site})",
                numbers={"passes": len(tally.turns)},
            )
    for event, tally in events.of("update-through-data"):
        yield Finding(
            "update-through-data",
            "warning",
            "a weight is updated through `.data` with a gradient that has a graph: the outer "
            "loss cannot see the update",
            cause="data",
            used=str(event.site),
            fix="compute new weights out of place (`w - lr * g`) and use them through "
            "torch.func.functional_call",
            numbers={"passes": len(tally.turns)},
        )
    for event, tally in events.of("detached"):
        if event.cut is not None:
            yield Finding(
                "detached-value",
                "info",
                "a value was computed with a graph, detached before any backward used the graph, "
                "and enters the loss as a constant",
                cause="detach",
                made=str(event.cut.site),
                used=str(event.site),
                fix="if it is meant as a constant, compute it under torch.no_grad(); otherwise "
                "remove the detach",
                numbers={"passes": len(tally.turns)},
            )
