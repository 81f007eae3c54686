"""Two backwards within one pass that share a part of the graph."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Carrier, Failure
from pullback.doctor.rules import words

RULES = {
    "shared-in-pass": "Two backwards of one pass share a part of the graph.",
    "same-root-twice": "The same loss is backwarded twice in one pass.",
    "freed-by-grad": "autograd.grad without create_graph frees a graph that is still needed.",
    "unknown-carrier": "The graph was freed earlier; by whom could not be seen.",
}


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of a graph that two backwards of one pass wanted."""
    cause = words.cause_of(failure)
    if failure.kind == "freed" and not failure.carriers:
        yield Finding(
            "unknown-carrier",
            "error",
            "the graph was freed by a backward that ran before the doctor looked, or in another "
            "thread",
            used=str(failure.backward.site),
            fix="open the doctor around the whole training loop",
        )
    if cause not in RULES:
        return
    carrier = failure.carriers[0]
    what, fix, avoid = _WORDS[cause](carrier, failure)
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
        numbers={"steps_between": words.steps_between(carrier, failure)},
    )


def _shared(carrier: Carrier, failure: Failure) -> tuple[str, str, str]:
    what = f"{words.named(carrier)} is needed by two backwards of the same pass"
    if failure.recomputed:
        what += " through a checkpointed block"
    name = carrier.path or "it"
    steps = words.steps_between(carrier, failure)
    if steps:
        fix = (
            f"if the first loss is not meant to train what made `{name}`, give it "
            f"`{name}.detach()`; otherwise add both losses and call backward once, before any step"
        )
        avoid = (
            "retain_graph=True on the first call: weights stepped in between "
            f"({failure.steps[-1]}) no longer match the graph, and the first loss still sends "
            f"gradients into what made `{name}`"
        )
    else:
        fix = (
            "add the losses and call backward once on the sum; or, if the first loss is not meant "
            f"to train what made `{name}`, give it `{name}.detach()`"
        )
        avoid = (
            "retain_graph=True on the first call runs here, but walks the shared part twice and "
            "holds it longer"
        )
    return what, fix, avoid


def _same_root(carrier: Carrier, failure: Failure) -> tuple[str, str, str]:
    first = failure.same_root
    where = f"at {first.site}" if first is not None else "before"
    return (
        f"{words.named(carrier)} was already backwarded {where}",
        "delete one of the two calls; a helper, a trainer or a framework may make one of them",
        "retain_graph=True: it would run and add every gradient twice",
    )


def _by_grad(carrier: Carrier, failure: Failure) -> tuple[str, str, str]:
    return (
        f"autograd.grad() freed the graph behind {words.named(carrier)}, which this loss needs",
        "pass create_graph=True to autograd.grad(), which keeps the graph and makes the gradient "
        "itself differentiable; for a gradient that is only a number, retain_graph=True there",
        "retain_graph=True alone when the gradient enters the loss: it would be a constant, and "
        "its term would train nothing",
    )


_WORDS = {"shared-in-pass": _shared, "same-root-twice": _same_root, "freed-by-grad": _by_grad}
