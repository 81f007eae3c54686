"""Losses and steps that train less than they seem to."""

from collections.abc import Iterator

from pullback.doctor.events import Events
from pullback.doctor.examination import Examination
from pullback.doctor.findings import Finding

RULES = {
    "blind-activation": "A loss on derivatives cannot train through a piecewise-linear activation.",
    "idle-step": "An optimizer steps although no backward has reached its tensors.",
    "unused-term": "A scalar is computed with a graph and used by nothing.",
    "unused-result": "An operation is computed with a graph that no backward reaches.",
}


def findings(events: Events, examination: Examination) -> Iterator[Finding]:
    """Findings about what is not trained."""
    for event, tally in events.of("blind"):
        # Zero can be an accident of one batch; twice it is the activation.
        if len(tally.turns) >= 2:
            yield Finding(
                "blind-activation",
                "warning" if event.path == "labels" else "info",
                f"{', '.join(event.detail)}: nothing from the derivative loss, because the "
                "activation is piecewise linear and its second derivative is zero",
                path=", ".join(event.detail),
                cause="blind-activation",
                made=str(event.site),
                fix="use a smooth activation (softplus, tanh, SiLU); the last bias gets nothing "
                "from any derivative loss, which is no fault",
                avoid="a larger weight for the derivative loss: zero stays zero",
                numbers={"tensors": len(event.detail), "passes": len(tally.turns)},
            )
    for event, tally in events.of("idle-step"):
        if len(tally.turns) >= 2:
            whose = f" ({event.path})" if event.path else ""
            yield Finding(
                "idle-step",
                "warning",
                f"this step trains nothing: no backward reached the {int(tally.numbers['tensors'])}"
                f" tensors of the optimizer{whose}, and they have no gradient",
                path=event.path,
                cause="idle-step",
                used=str(event.site),
                fix="look for a `.detach()`, `.data` or `no_grad` between these tensors and the "
                "loss, or for the wrong loss",
                numbers={"passes": len(tally.turns)},
            )
    for event, tally in events.of("unused-term"):
        if len(tally.turns) >= 2:
            yield Finding(
                "unused-term",
                "warning",
                "a scalar is computed with a graph, but nothing reads it and no backward reaches "
                "it",
                cause="unused",
                made=str(event.site),
                fix="add it to the loss, or compute it under torch.no_grad()",
                numbers={"passes": len(tally.turns)},
            )
    for event, tally in events.of("unused"):
        yield Finding(
            "unused-result",
            "info",
            "computed with a graph that no backward reaches",
            cause="unused",
            made=str(event.site),
            fix="compute it under torch.no_grad() if it is only a number to look at; otherwise "
            "add it to the loss",
            numbers={"passes": len(tally.turns)},
        )
