"""A saved tensor that was changed in place before its backward."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Failure
from pullback.doctor.rules import words

RULES = {
    "step-between": "An optimizer step changed a weight that a later backward still needs.",
    "changed-in-place": "A tensor that backward needs was changed in place.",
}


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of a value that is newer than the graph that saved it."""
    if failure.kind != "modified":
        return
    path, kind, writer = failure.modified
    name = f"`{path}`" if path else "a tensor"
    stepped = kind == "parameter"
    carrier = failure.carriers[0] if failure.carriers else None
    if stepped:
        what = f"{name}, a parameter, was stepped between the forward that used it and backward"
        fix = "run every backward before the first optimizer step, or compute the forward again"
        if carrier is not None:
            what += f"; the old forward is reached through {words.named(carrier)}"
            fix = f"detach `{carrier.path or 'the carried value'}` between passes, " + fix
    elif kind == "buffer":
        what = f"{name}, a buffer, was changed in place between forward and backward"
        fix = (
            "assign a new tensor instead of writing into the buffer; under DistributedDataParallel "
            "use broadcast_buffers=False or one forward on the concatenated batch"
        )
    else:
        what = f"{name} was changed in place after {failure.consumer} had saved it"
        fix = "use the out-of-place form (`x = x + y`, not `x += y`), or write into a clone"
    yield Finding(
        rule="step-between" if stepped else "changed-in-place",
        severity="error",
        what=what,
        path=(carrier.path if carrier is not None and carrier.path else path),
        cause="step-between" if stepped else "changed-in-place",
        made=words.made(carrier, failure) if carrier else _saved(failure),
        freed=f"changed at {writer}" if writer else "",
        used=f"pass {failure.backward.turn}, {failure.backward.call} at {failure.backward.site}",
        fix=fix,
        avoid="`.data` or `no_grad` around the change: it hides the change and the gradient is "
        "wrong without an error",
    )


def _saved(failure: Failure) -> str:
    return f"saved by {failure.consumer} at {failure.consumed}" if failure.consumed else ""
