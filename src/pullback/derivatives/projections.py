"""Cotangents pulled back as given, and random ones that estimate a whole Jacobian's error.

NOTE [Random projections]
With many outputs the Jacobian is dear, one pull for each of K. A row of random signs u (Rademacher)
has E[u uᵀ] = I, so for any K x D matrix A,

    E ||uᵀA||² = E tr(Aᵀ u uᵀ A) = tr(AᵀA) = ||A||²  (Frobenius).

With A the difference of a true and a learned Jacobian, the mean over V projections is an unbiased
estimate of the squared error at V pulls. Signs have the least variance among such u with
independent entries, Var ||uᵀA||² = 2 Σ_{k≠l} (AAᵀ)²_kl: none at all from the diagonal (Hutchinson,
"A stochastic estimator of the trace of the influence matrix", 1990).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pullback.derivatives._checks import (
    as_dtype_of,
    check_chunk_size,
    check_unconnected,
    shape_of,
)
from pullback.derivatives._connect import autograd_on, connect
from pullback.derivatives._inputs import Key, Tensors, normal, parse_inputs
from pullback.derivatives._rows import probe_rows
from pullback.derivatives.jacobian import pull_stack
from pullback.errors import DtypeError, InputError, ShapeError


def value_and_pullback(
    f: Callable[..., Tensor],
    x: Tensors,
    cotangents: Tensor,
    *,
    wrt: Key | Sequence[Key] | None = None,
    chunk_size: int | None = None,
    check_rows: bool = True,
    unconnected: str = "error",
) -> tuple[Tensor, Tensors]:
    """Return y = f(x) and cotangents on y pulled back to x.

    pulled[n] = Σ_k u[n, k] ∂y[n, k] / ∂x[n], or pulled[n, v] for each of V cotangents u[v]. With
    grad mode on, results can be differentiated again, to the cotangents too.

    Args:
        f: a module or a function with independent rows, [N, *D] -> [N, *K].
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)).
        cotangents: one for each output, of y's shape [N, *K], or a stack of them [V, N, *K].
        wrt: the index or name of one input, or a sequence of them; default all floating inputs.
        chunk_size: how many of the V are pulled back together, as in `value_and_jacobian`.
        check_rows: probe first whether rows are independent (see `check_independent_rows`).
        unconnected: "error", or "zero" for zeros where y does not depend on an input.

    Returns:
        y [N, *K] and pulled [N, *D], or [N, V, *D] for a stack, so that rows stay in front: a
        tensor if x or wrt is a single one, else the container of x.

    Raises:
        ShapeError: cotangents do not have y's shape, or f averages over rows.
        DtypeError: an input or the output is integer or complex.
        UnconnectedInputError: the output does not depend on an input.
        CoupledRowsError: a row of the output depends on another row of the input.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> f = lambda x: torch.stack([x.sum(1), x.prod(1)], 1)
    >>> y, pulled = value_and_pullback(f, x, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> pulled
    tensor([[1., 1.],
            [4., 3.]])
    """
    api = "value_and_pullback"
    check_unconnected(api, unconnected)
    check_chunk_size(api, chunk_size)
    inputs = parse_inputs(api, x, wrt)
    if not isinstance(cotangents, Tensor):
        raise InputError(
            f"{api}: expected cotangents to be a tensor, got {type(cotangents).__name__}."
        )
    if check_rows:
        probe_rows(f, inputs)
    with autograd_on() as recording:
        zero = unconnected == "zero"
        graph = connect(f, inputs, recording=recording, zero=zero, also=[cotangents])
        u = _fitting(api, normal(cotangents), graph.y)
        if u.dim() == graph.y.dim():
            pulled = graph.pull(u)
        else:
            pulled = pull_stack(graph, lambda a, b: u[a:b], len(u), chunk_size)
        return graph.released(graph.y), inputs.pack(pulled)


def _fitting(api: str, cotangents: Tensor, y: Tensor) -> Tensor:
    stacked = cotangents.dim() == y.dim() + 1
    if (cotangents.shape[1:] if stacked else cotangents.shape) != y.shape:
        raise ShapeError(
            f"{api}: expected cotangents of the output's shape {shape_of(y)}, or a stack of them "
            f"[V, {shape_of(y)[1:]}, got {shape_of(cotangents)}."
        )
    return as_dtype_of(api, "cotangents", cotangents, y)


def random_cotangents(
    outputs_shape: Sequence[int],
    count: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw V random cotangents of independent signs, ±1 with equal probability.

    For each row E[u uᵀ] = I, so that E ||uᵀA||² = ||A||² for any K x D matrix A, such as the error
    of a Jacobian. See NOTE [Random projections].

    Args:
        outputs_shape: the shape of y, [N, *K].
        count: V.
        generator: the source of random numbers; None draws from torch's global stream.
        dtype: a floating dtype, default torch's.
        device: where the result lies, default the generator's, or torch's.

    Returns:
        u [V, N, *K], to give to `value_and_pullback`.

    Raises:
        InputError: count is less than one.
        DtypeError: dtype is not a floating one.

    >>> u = random_cotangents([4, 3], 2, generator=torch.Generator().manual_seed(0))
    >>> u.shape, u.unique()
    (torch.Size([2, 4, 3]), tensor([-1.,  1.]))
    """
    api = "random_cotangents"
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if count < 1:
        raise InputError(f"{api}: expected count to be 1 or more, got {count}.")
    if not dtype.is_floating_point:
        raise DtypeError(f"{api}: expected a floating dtype, got {dtype}.")
    if device is None and generator is not None:
        device = generator.device
    shape = (count, *outputs_shape)
    bits = torch.randint(0, 2, shape, generator=generator, device=device, dtype=dtype)
    return bits.mul_(2).sub_(1)
