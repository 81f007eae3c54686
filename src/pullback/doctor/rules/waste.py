"""Graphs kept for nothing, and values kept too long."""

from collections.abc import Iterator

from pullback.doctor.events import Events
from pullback.doctor.examination import Examination
from pullback.doctor.findings import Finding

RULES = {
    "stale-value": "A value computed once keeps the weights that it was computed with.",
    "rows-retained": "One graph is walked again for every row.",
    "retained-graph": "retain_graph=True where nothing comes back to the graph.",
}


def findings(events: Events, examination: Examination) -> Iterator[Finding]:
    """Findings about graphs that live longer than they should."""
    for event, tally in events.of("stale"):
        name = f"`{event.path}`" if event.path else "a value"
        yield Finding(
            "stale-value",
            "warning",
            f"{name} was made once, before the optimizer stepped, and is used in every pass: it "
            "keeps the value that the weights had then",
            path=event.path,
            cause="made-once",
            used=str(event.site),
            fix=f"compute {name} again in every pass",
            numbers=dict(tally.numbers),
        )
    for kind, severity in (("rows", "warning"), ("rows-by-grad", "info")):
        for event, tally in events.of(kind):
            name = f"`{event.path}`" if event.path else "one output"
            yield Finding(
                "rows-retained",
                severity,
                f"the graph of {name} is held and walked again for every row: N walks for N rows",
                path=event.path,
                cause="row-by-row",
                used=str(event.site),
                fix="sum the losses and call backward once; if rows are picked over time, use "
                "`pullback.infer`; for Jacobians `pullback.value_and_jacobian`",
                numbers=dict(tally.numbers),
            )
    for event, tally in events.of("retained"):
        yield Finding(
            "retained-graph",
            "info",
            "retain_graph=True keeps a graph that no later backward visits",
            cause="retained",
            used=str(event.site),
            fix="remove retain_graph=True",
            numbers={"passes": len(tally.turns)},
        )
