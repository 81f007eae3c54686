"""Second order, along one direction a row."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pullback._torch import has_refusal
from pullback.derivatives._checks import check_unconnected, one_output_a_row
from pullback.derivatives._connect import Graph, autograd_on, connect
from pullback.derivatives._inputs import Key, Tensors, parse_inputs
from pullback.derivatives._rows import probe_rows
from pullback.errors import GradientError


def value_gradient_and_hvp(
    f: Callable[..., Tensor],
    x: Tensors,
    v: Tensors,
    *,
    wrt: Key | Sequence[Key] | None = None,
    check_rows: bool = True,
    unconnected: str = "error",
) -> tuple[Tensor, Tensors, Tensors]:
    """Return y = f(x), each row's gradient, and each row's Hessian times that row's direction.

    Hv[n] = Σ_e ∂²y[n] / ∂x[n] ∂x[n, e] v[n, e], the gradient of g·v by reverse over reverse
    (Pearlmutter, "Fast exact multiplication by the Hessian", 1994); no Hessian is formed. With
    several inputs the sum runs over all of `wrt`, mixed second derivatives included. Where y is
    linear Hv is zero, and so it is for piecewise linear networks (ReLU). With grad mode on,
    results can be differentiated again.

    Args:
        f: a module or a function with independent rows, [N, *D] -> [N] or [N, 1].
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)).
        v: directions [N, *D], or [*D] for one direction in all rows; for several inputs a tuple
            or dict of them, one for each of `wrt`.
        wrt: the index or name of one input, or a sequence of them; default all floating inputs.
        check_rows: probe first whether rows are independent (see `check_independent_rows`).
        unconnected: "error", or "zero" for zeros where y does not depend on an input.

    Returns:
        y [N], g [N, *D] and Hv [N, *D]; g and Hv are tensors if x or wrt is a single one, else
        the container of x.

    Raises:
        ShapeError: v does not fit x, f averages over rows, or has several outputs a row.
        DtypeError: an input or the output is integer or complex.
        UnconnectedInputError: the output does not depend on an input.
        CoupledRowsError: a row of the output depends on another row of the input.
        GradientError: an operator in f has no second derivative.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y, g, hv = value_gradient_and_hvp(lambda x: (x**3).sum(1), x, torch.tensor([1.0, 0.0]))
    >>> hv
    tensor([[ 6.,  0.],
            [18.,  0.]])
    """
    api = "value_gradient_and_hvp"
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
        y = one_output_a_row(api, graph.y)
        gradients = graph.pull(torch.ones_like(graph.y), graph=True)
        products = _pull_again(graph, gradients, directions)
        return (
            graph.released(y),
            inputs.pack([graph.released(g) for g in gradients]),
            inputs.pack(products),
        )


def _pull_again(
    graph: Graph, gradients: Sequence[Tensor], directions: Sequence[Tensor]
) -> list[Tensor]:
    """The gradient of Σ_n g_n·v_n, for each point."""
    curved = [(g, v) for g, v in zip(gradients, directions, strict=True) if g.requires_grad]
    if not curved:
        return [torch.zeros_like(point) for point in graph.points]
    outputs, along = zip(*curved, strict=True)
    if has_refusal(outputs):
        raise GradientError(_refused(graph.inputs.api, "it is marked once_differentiable"))
    try:
        products = torch.autograd.grad(
            outputs, graph.points, along, create_graph=graph.keep, allow_unused=True
        )
    except RuntimeError as error:
        raise GradientError(_refused(graph.inputs.api, str(error))) from error
    # None here is a true zero: y is connected (that was checked), but its gradient is constant.
    return [
        torch.zeros_like(point) if product is None else product
        for point, product in zip(graph.points, products, strict=True)
    ]


def _refused(api: str, why: str) -> str:
    return (
        f"{api}: an operator in f cannot be differentiated twice ({why}). Fused kernels often "
        "cannot: for recurrent layers on a GPU turn cuDNN off "
        "(torch.backends.cudnn.flags(enabled=False)); a custom autograd.Function needs a "
        "differentiable backward."
    )
