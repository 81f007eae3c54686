"""Hand-written backpropagation compared with autograd, factor by factor."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pullback.doctor import _torch
from pullback.doctor.findings import Finding, Findings
from pullback.doctor.walk import base_name, walk
from pullback.errors import InputError, ShapeError

_LINEAR = frozenset(
    (
        "Addmm",
        "Mm",
        "Bmm",
        "T",
        "View",
        "UnsafeView",
        "Reshape",
        "ReshapeAlias",
        "Squeeze",
        "Unsqueeze",
        "Add",
        "Sub",
        "Expand",
        "Transpose",
        "Permute",
        "Sum",
        "Mean",
        "Select",
        "Slice",
        "Cat",
        "Clone",
        "Linear",
        "ToCopy",
        "Stack",
    )
)
_SCALES = ("Mul", "Div")
_MOST_FACTORS = 10  # 2**10 backwards at most


class Factor(NamedTuple):
    """One factor of the chain rule: its node, what it is, and the layer below it."""

    node: Any
    kind: str
    layer: str


def check_twin(
    model: nn.Module, x: Tensor, *, backprop: Callable[[], Tensor] | None = None
) -> Findings:
    """Compare a hand-written derivative with autograd and name the factors it forgot.

    The model's own derivative is compared with ∂y_i/∂x_i by autograd. If they differ, factors of
    the chain rule (a scale such as omega_0, the derivative of an activation) are left out one by
    one and together until the result is the hand-written one.

    Args:
        model: `model(x)` gives `(y, dydx)`, or `y` if `backprop` is given. y is `[N]` or `[N, 1]`.
        x: inputs `[N, D]`; rows must be independent.
        backprop: called after `model(x)`, gives dydx `[N, D]`.

    Returns:
        One finding of the rule "twin-factor" for each missing factor; none if all is right.

    Raises:
        ShapeError: y has more than one output a row, or dydx is not of the shape of x.
        InputError: the model gives no derivative.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner, self.outer = nn.Linear(2, 4), nn.Linear(4, 1)
    ...     def forward(self, x):
    ...         z = 3.0 * self.inner(x)
    ...         forgotten = (self.outer.weight * (1 - torch.tanh(z) ** 2)) @ self.inner.weight
    ...         return self.outer(torch.tanh(z)), forgotten
    >>> print(check_twin(Net(), torch.randn(5, 2))[0].what)
    the factor 3 (a multiplication) at layer `inner` is missing from the hand-written derivative
    """
    with torch.enable_grad():
        inputs = x.detach().clone().requires_grad_(True)
        y, own = _both(model, inputs, backprop)
        if y.shape not in ((len(x),), (len(x), 1)):
            raise ShapeError(
                f"check_twin: expected one output a row, [N] or [N, 1] (got {tuple(y.shape)})"
            )
        if own.shape != x.shape:
            raise ShapeError(
                f"check_twin: expected dydx of shape {tuple(x.shape)} (got {tuple(own.shape)})"
            )
        right = _gradient(y, inputs)
        findings = Findings()
        if _close(own, right):
            return findings
        factors = list(_factors(y, model))
        for left_out in _hypotheses(factors):
            if _close(own, _gradient(y, inputs, left_out)):
                for factor in left_out:
                    findings.add(_finding(factor))
                return findings
    findings.add(_unexplained(own.detach(), right))
    return findings


def _both(
    model: nn.Module, x: Tensor, backprop: Callable[[], Tensor] | None
) -> tuple[Tensor, Tensor]:
    result = model(x)
    if backprop is not None:
        return result, backprop()
    if not (isinstance(result, tuple) and len(result) == 2):
        raise InputError(
            "check_twin: expected model(x) to give (y, dydx); pass backprop= if another call "
            "gives the derivative"
        )
    return result


def _gradient(y: Tensor, x: Tensor, left_out: tuple[Factor, ...] = ()) -> Tensor:
    """∂y_i/∂x_i, with the backward of the left-out factors replaced by the identity."""
    handles = [
        factor.node.register_hook(
            lambda inputs, outputs: tuple(
                outputs[0] if g is not None and g.shape == outputs[0].shape else g for g in inputs
            )
        )
        for factor in left_out
    ]
    try:
        return torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    finally:
        for handle in handles:
            handle.remove()


def _close(a: Tensor, b: Tensor) -> bool:
    # Rounding only: both are products of the same numbers in another order.
    scale = float(b.abs().max()) or 1.0
    tolerance = 1e3 * torch.finfo(b.dtype).eps * scale
    return bool((a.detach() - b).abs().max() <= tolerance)


def _factors(y: Tensor, model: nn.Module) -> Iterator[Factor]:
    names = {id(p): name.rpartition(".")[0] or name for name, p in model.named_parameters()}
    for node in sorted(walk([y.grad_fn]).nodes, key=lambda n: -_torch.sequence_of(n)):
        edges = [child for child, _ in node.next_functions if child is not None]
        if len(edges) != 1 or base_name(node) in _LINEAR:
            continue
        kind = "scale" if base_name(node) in _SCALES else "activation"
        yield Factor(node, kind, _layer_below(edges[0], names))


def _layer_below(node: Any, names: dict[int, str]) -> str:
    for reached in walk([node]).nodes:
        for child, _ in reversed(reached.next_functions):
            for leaf in walk([child]).leaves if child is not None else ():
                name = names.get(id(_torch.variable_of(leaf)))
                if name:
                    return name
    return ""


def _hypotheses(factors: list[Factor]) -> Iterator[tuple[Factor, ...]]:
    """What may have been left out, the most usual first."""
    scales = tuple(f for f in factors if f.kind == "scale")
    activations = tuple(f for f in factors if f.kind == "activation")
    usual = [scales, activations, scales + activations]
    yield from (group for group in usual if group)
    yield from ((factor,) for factor in factors)
    if len(factors) <= _MOST_FACTORS:
        for size in range(2, len(factors)):
            yield from combinations(factors, size)


def _finding(factor: Factor) -> Finding:
    layer = f" at layer `{factor.layer}`" if factor.layer else ""
    if factor.kind == "scale":
        value = _scale_of(factor.node)
        return Finding(
            "twin-factor",
            "error",
            f"the factor{value} (a multiplication){layer} is missing from the hand-written "
            "derivative",
            path=factor.layer,
            cause="scale",
            fix=f"multiply the derivative by the same factor{value}{layer}",
        )
    name = base_name(factor.node)
    return Finding(
        "twin-factor",
        "error",
        f"the derivative of {name}{layer} is missing from the hand-written derivative: it is "
        "taken as one (the identity has derivative one)",
        path=factor.layer,
        cause="activation",
        fix=f"multiply by the derivative of {name} at the pre-activation{layer}",
    )


def _scale_of(node: Any) -> str:
    for name in ("_saved_other", "_saved_self"):
        value = getattr(node, name, None)
        if isinstance(value, Tensor) and value.numel() == 1:
            return f" {float(value):g}"
        if isinstance(value, int | float):
            return f" {value:g}"
    return ""


def _unexplained(own: Tensor, right: Tensor) -> Finding:
    ratio = float((own * right).sum() / (right * right).sum())
    worst = float((own - right).abs().max())
    uniform = _close(own, ratio * right)
    return Finding(
        "twin-factor",
        "error",
        f"the hand-written derivative is {ratio:.6g} times the right one"
        if uniform
        else f"the hand-written derivative differs from autograd by up to {worst:.3g}, and not by "
        "leaving out scales or activation derivatives",
        cause="constant" if uniform else "unexplained",
        fix="compare the order of the layers, transposed weights and the activation's derivative",
        numbers={"ratio": ratio, "largest_difference": worst},
    )
