"""The derivative along one direction a row, at the cost of a few backwards for any K.

NOTE [Forward from reverse]
The pull u -> Jᵀu is linear in u, so its derivative along v with respect to u is the transpose's
transpose, J v: two reverse passes (Townsend, "A new trick for calculating Jacobian vector
products", 2017). torch's forward mode would do it in one pass, but measured slower on MLPs (4 to
12 forwards against 3 to 4), lacks rules for some operators, and sees through no_grad blocks, where
it would contradict the Jacobian. With K = 1 the gradient, times v, is cheaper still (2 to 3).
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from pullback._torch import has_refusal
from pullback.derivatives._checks import check_unconnected
from pullback.derivatives._connect import Graph, autograd_on, connect
from pullback.derivatives._inputs import Key, Tensors, parse_inputs
from pullback.derivatives._rows import probe_rows
from pullback.derivatives.jacobian import unit_cotangents


def value_and_directional(
    f: Callable[..., Tensor],
    x: Tensors,
    v: Tensors,
    *,
    wrt: Key | Sequence[Key] | None = None,
    check_rows: bool = True,
    unconnected: str = "error",
) -> tuple[Tensor, Tensor]:
    """Return y = f(x) and the derivative of each row's outputs along that row's direction.

    dydv[n, k] = Σ_d v[n, d] ∂y[n, k] / ∂x[n, d], without forming the Jacobian; v is taken as it
    is, not normalised. With several inputs the sum runs over all of `wrt`. With grad mode on,
    results can be differentiated again, to v too. See NOTE [Forward from reverse].

    Args:
        f: a module or a function with independent rows, [N, *D] -> [N, *K].
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)).
        v: directions [N, *D], or [*D] for one direction in all rows; for several inputs a tuple
            or dict of them, one for each of `wrt`.
        wrt: the index or name of one input, or a sequence of them; default all floating inputs.
        check_rows: probe first whether rows are independent (see `check_independent_rows`).
        unconnected: "error", or "zero" to let an input that y does not depend on add nothing.

    Returns:
        y [N, *K] and dydv [N, *K].

    Raises:
        ShapeError: v does not fit x, or f averages over rows.
        DtypeError: an input or the output is integer or complex.
        UnconnectedInputError: the output does not depend on an input.
        CoupledRowsError: a row of the output depends on another row of the input.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> f = lambda x: torch.stack([x.sum(1), x.prod(1)], 1)
    >>> y, dydv = value_and_directional(f, x, torch.tensor([1.0, 0.0]))
    >>> dydv
    tensor([[1., 2.],
            [1., 4.]])
    """
    api = "value_and_directional"
    check_unconnected(api, unconnected)
    inputs = parse_inputs(api, x, wrt)
    with autograd_on() as recording:
        directions = inputs.directions(v)
        if check_rows:
            probe_rows(f, inputs)
        graph = connect(
            f,
            inputs,
            recording=recording,
            zero=unconnected == "zero",
            twice=True,
            also=directions,
        )
        return graph.released(graph.y), graph.released(_along(graph, directions))


def _along(graph: Graph, directions: Sequence[Tensor]) -> Tensor:
    """J v, [N, *K]."""
    y = graph.y
    if prod(y.shape[1:]) == 1:
        return dot_rows(graph.pull(torch.ones_like(y)), directions).reshape(y.shape)
    dydv = _along_by_two_pulls(graph, directions)
    return _along_by_outputs(graph, directions) if dydv is None else dydv


def _along_by_two_pulls(graph: Graph, directions: Sequence[Tensor]) -> Tensor | None:
    """J v by NOTE [Forward from reverse]; None if a backward in f is not differentiable in u."""
    u = torch.zeros_like(graph.y, requires_grad=True)
    try:
        pulled = graph.pull(u, graph=True)
        linear = [(g, v) for g, v in zip(pulled, directions, strict=True) if g.requires_grad]
        if not linear or has_refusal(pulled):
            return None
        outputs, along = zip(*linear, strict=True)
        return torch.autograd.grad(outputs, u, along, create_graph=graph.keep, retain_graph=True)[0]
    except RuntimeError:
        return None


def _along_by_outputs(graph: Graph, directions: Sequence[Tensor]) -> Tensor:
    y = graph.y
    columns = []
    for k in range(prod(y.shape[1:])):
        (unit,) = unit_cotangents(y, k, k + 1)
        columns.append(dot_rows(graph.pull(unit, retain=True), directions))
    return torch.stack(columns, 1).reshape(y.shape) if columns else torch.zeros_like(y)


def dot_rows(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Σ_d a[n, d] b[n, d], summed over inputs, [N]."""
    products = [g * v for g, v in zip(a, b, strict=True)]
    return torch.stack([p.reshape(len(p), prod(p.shape[1:])).sum(1) for p in products]).sum(0)
