"""A tensor that lives from pass to pass and brings its graph along."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Carrier, Failure
from pullback.doctor.rules import words

RULES = {
    "carried-state": "A state that lives from pass to pass brings its old graph along.",
    "growing-container": "A container is never emptied and still holds tensors of older passes.",
    "loss-accumulator": "A loss is added to one that has already been backwarded.",
}


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of a carried state, a growing container or an accumulated loss."""
    cause = words.cause_of(failure)
    if cause not in RULES:
        return
    carrier = failure.carriers[0]
    what, fix = _WORDS[cause](carrier, failure)
    others = sorted({c.path for c in failure.carriers[1:] if c.path and c.path != carrier.path})
    if others:
        what += "; also " + ", ".join(f"`{path}`" for path in others)
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
        avoid=words.retaining_grows(carrier, failure),
        numbers={"nodes": failure.nodes, "pass": failure.backward.turn},
    )


def _state(carrier: Carrier, failure: Failure) -> tuple[str, str]:
    what = f"{words.named(carrier)} carries the graph of pass {carrier.turn} into this pass"
    name = carrier.path or "the state"
    if carrier.dropped_detach:
        file, _, line = carrier.dropped_detach.rpartition(":")
        what += f"; line {line} detaches a copy of it and drops the copy"
        return what, f"assign the result: `{name} = {name}.detach()` ({file}:{line})"
    if carrier.consumer.startswith(("Zero", "Fill", "CopySlices")):
        what += "; its values were reset in place, its history was not"
        return what, (
            f"reset it with new zeros, `{name} = torch.zeros_like({name})`, "
            f"or call `{name}.detach_()` before the reset"
        )
    return what, (
        f"cut it between passes, in the loop: `{name} = {name}.detach()` where a pass begins, or "
        "reset it; inside the module this would also stop gradients within one pass"
    )


def _container(carrier: Carrier, failure: Failure) -> tuple[str, str]:
    before, after = carrier.lengths or (0, 0)
    what = (
        f"{words.named(carrier)}: `{carrier.container}` grew from {before} to {after} entries and "
        "is never emptied"
    )
    name = carrier.container.rpartition(".")[2]
    return what, (
        f"empty `{name}` where a pass begins (`{name}.clear()` or `{name} = []` at the start of "
        "forward or of the loop body); append `.detach()` if old values are only numbers"
    )


def _loss(carrier: Carrier, failure: Failure) -> tuple[str, str]:
    what = (
        f"{words.named(carrier)} is a sum that still holds a loss of pass {carrier.turn}, "
        "which was already backwarded"
    )
    name = carrier.path or "the sum"
    return what, (
        f"start `{name}` from zero before the next backward; for a running total use "
        f"`.item()` or `.detach()`, and call backward on the loss of this pass alone"
    )


_WORDS = {"carried-state": _state, "growing-container": _container, "loss-accumulator": _loss}
