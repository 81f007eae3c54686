"""A loss without any graph."""

from collections.abc import Iterator

from pullback.doctor.findings import Finding
from pullback.doctor.records import Failure

RULES = {"no-graph": "The loss has no graph: something cut it off, or nothing is trained."}

_HOW = {
    "detach": "`.detach()`",
    "detach_": "`.detach_()`",
    "data": "`.data`",
    "read": "`.item()` or another read",
    "comparison": "a comparison, which has no gradient",
    "no_grad": "a `no_grad` block",
    "grad": "autograd.grad() without create_graph=True",
}
FIXES = {
    "detach": "remove the `.detach()`",
    "detach_": "remove the `.detach_()`",
    "data": "use the tensor itself, not its `.data`",
    "read": "keep the tensor; read numbers only for logging",
    "comparison": "use a differentiable function (sigmoid, softmax) in its place",
    "no_grad": "compute it outside `torch.no_grad()`",
    "grad": "pass create_graph=True to autograd.grad()",
}


def how(kind: str) -> str:
    """What cut a value off, in words."""
    return _HOW[kind]


def findings(failure: Failure) -> Iterator[Finding]:
    """The finding of a backward from a tensor without a graph."""
    if failure.kind != "disconnected":
        return
    path, frozen, _ = failure.modified
    name = f"`{path}`" if path else "the root"
    cut = failure.cut
    if cut is not None:
        what = f"{name} has no graph: {how(cut.kind)} cut it off"
        made, fix = str(cut.site), f"{FIXES[cut.kind]} ({cut.site})"
    elif frozen:
        what = f"{name} has no graph: no tensor in sight requires a gradient"
        made, fix = "", "set requires_grad on what is to be trained"
    else:
        what = f"{name} has no graph: it was made from plain numbers or inside `no_grad`"
        made, fix = "", "compute it from the model's output, with tensors, outside `no_grad`"
    yield Finding(
        rule="no-graph",
        severity="error",
        what=what,
        path=path,
        cause=cut.kind if cut is not None else "no-graph",
        made=made,
        used=f"pass {failure.backward.turn}, {failure.backward.call} at {failure.backward.site}",
        fix=fix,
        avoid="`loss.requires_grad_()`: the error goes away and nothing is trained",
    )
