"""One output a row: its value and its gradient, from one backward."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pullback.derivatives._checks import check_unconnected, one_output_a_row
from pullback.derivatives._connect import autograd_on, connect
from pullback.derivatives._inputs import Key, Tensors, parse_inputs
from pullback.derivatives._rows import probe_rows


def value_and_gradient(
    f: Callable[..., Tensor],
    x: Tensors,
    *,
    wrt: Key | Sequence[Key] | None = None,
    check_rows: bool = True,
    unconnected: str = "error",
) -> tuple[Tensor, Tensors]:
    """Return y = f(x) and the gradient of each row's output with respect to that row's input.

    dydx[n] = ∂y[n] / ∂x[n], never 1/N of it: the rows are independent, so the gradient of
    Σ_n y[n] holds all of them and one backward is enough.

    With grad mode on, results can be differentiated again, to the weights of f and to whatever
    x came from; under no_grad and inference_mode they are right and detached.

    Args:
        f: a module or a function with independent rows, [N, *D] -> [N] or [N, 1].
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)). Integer
            inputs are passed on and not differentiated.
        wrt: the index or name of one input, or a sequence of them; default all floating inputs.
        check_rows: probe first whether rows are independent (see `check_independent_rows`).
        unconnected: "error", or "zero" for zeros where y does not depend on an input.

    Returns:
        y [N] and dydx [N, *D]: a tensor if x or wrt is a single one, else the container of x.

    Raises:
        ShapeError: f averages over rows, or has several outputs a row.
        DtypeError: an input or the output is integer or complex.
        UnconnectedInputError: the output does not depend on an input.
        CoupledRowsError: a row of the output depends on another row of the input.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y, dydx = value_and_gradient(lambda x: (x**2).sum(1), x)
    >>> y
    tensor([ 5., 25.])
    >>> dydx
    tensor([[2., 4.],
            [6., 8.]])
    """
    api = "value_and_gradient"
    check_unconnected(api, unconnected)
    inputs = parse_inputs(api, x, wrt)
    if check_rows:
        probe_rows(f, inputs)
    with autograd_on() as recording:
        graph = connect(f, inputs, recording=recording, zero=unconnected == "zero")
        y = one_output_a_row(api, graph.y)
        gradients = graph.pull(torch.ones_like(graph.y))
        return graph.released(y), inputs.pack(gradients)
