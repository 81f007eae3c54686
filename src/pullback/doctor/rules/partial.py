"""What a failed backward leaves behind."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Failure

RULES = {"partial-gradients": "A backward that failed half way left gradients behind."}


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of gradients that a failed backward may have filled."""
    filled, tensors = failure.filled
    if filled and failure.kind != "disconnected":
        yield Finding(
            "partial-gradients",
            "info",
            f"{filled} of the {tensors} tensors of this loss hold a gradient after the failure",
            used=f"pass {failure.backward.turn}, {failure.backward.site}",
            fix="if the exception is caught, call zero_grad() before going on",
            numbers={"filled": filled, "tensors": tensors},
        )
