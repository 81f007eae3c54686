"""A value computed once and used in every pass."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Failure
from pullback.doctor.rules import words

RULES = {
    "made-once": "A value is computed once, with a graph, and used in every pass.",
    "row-by-row": "One output is backwarded row by row; the first row frees its graph.",
}


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of a value made once, or of one output walked row by row."""
    cause = words.cause_of(failure)
    if cause not in RULES:
        return
    carrier = failure.carriers[0]
    name = carrier.path or "the value"
    if cause == "row-by-row":
        what = f"{words.named(carrier)} is one output whose rows are backwarded one after another"
        fix = (
            "sum the losses of all rows and call backward once; if the rows are picked over time, "
            "use `pullback.infer`, which pulls back each pick in bounded memory"
        )
        avoid = (
            "retain_graph=True: every row walks the whole graph again, N walks for N rows, and "
            "with an optimizer step between rows it stops with 'modified by an inplace operation'"
        )
    else:
        what = f"{words.named(carrier)} was made once and is used in every pass"
        fix = (
            f"compute `{name}` again in every pass (inside the loop, or in forward) if anything "
            f"it depends on is trained; otherwise detach it once: `{name} = {name}.detach()`"
        )
        avoid = words.retaining_is_stale(carrier, failure)
    yield Finding(
        rule=cause,
        severity="error",
        what=what,
        path=carrier.path,
        cause=cause,
        made=words.made(carrier, failure),
        freed=words.freed(carrier),
        used=words.used(carrier, failure),
        fix=fix,
        avoid=avoid,
        numbers={"pass": failure.backward.turn},
    )
