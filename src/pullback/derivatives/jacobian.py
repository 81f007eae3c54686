"""Several outputs a row: their values and the Jacobian, a chunk of outputs at a time."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

from pullback.derivatives._checks import check_chunk_size, check_unconnected
from pullback.derivatives._connect import Graph, autograd_on, connect
from pullback.derivatives._inputs import Key, Tensors, parse_inputs
from pullback.derivatives._rows import probe_rows


def value_and_jacobian(
    f: Callable[..., Tensor],
    x: Tensors,
    *,
    wrt: Key | Sequence[Key] | None = None,
    chunk_size: int | None = None,
    check_rows: bool = True,
    unconnected: str = "error",
) -> tuple[Tensor, Tensors]:
    """Return y = f(x) and the Jacobian of each row's outputs with respect to that row's input.

    jac[n, k] = ∂y[n, k] / ∂x[n], by reverse mode over the K outputs: one forward and K backwards,
    each for all rows at once. With grad mode on, results can be differentiated again.

    Args:
        f: a module or a function with independent rows, [N, *D] -> [N, *K].
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)).
        wrt: the index or name of one input, or a sequence of them; default all floating inputs.
        chunk_size: how many outputs are pulled back together; working memory grows with it. None
            chooses by the size of x: up to 64 for few rows, 1 for many. 1 is a plain loop.
        check_rows: probe first whether rows are independent (see `check_independent_rows`).
        unconnected: "error", or "zero" for zeros where y does not depend on an input.

    Returns:
        y [N, *K] and jac [N, *K, *D]: a tensor if x or wrt is a single one, else the container
        of x.

    Raises:
        ShapeError: f averages over rows.
        DtypeError: an input or the output is integer or complex.
        UnconnectedInputError: the output does not depend on an input.
        CoupledRowsError: a row of the output depends on another row of the input.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y, jac = value_and_jacobian(lambda x: torch.stack([x.sum(1), x.prod(1)], 1), x)
    >>> jac
    tensor([[[1., 1.],
             [2., 1.]],
            [[1., 1.],
             [4., 3.]]])
    """
    api = "value_and_jacobian"
    check_unconnected(api, unconnected)
    check_chunk_size(api, chunk_size)
    inputs = parse_inputs(api, x, wrt)
    if check_rows:
        probe_rows(f, inputs)
    with autograd_on() as recording:
        graph = connect(f, inputs, recording=recording, zero=unconnected == "zero")
        y = graph.y
        stacks = pull_stack(graph, partial(unit_cotangents, y), _outputs(y), chunk_size)
        shaped = [j.reshape(*y.shape, *j.shape[2:]) for j in stacks]
        return graph.released(y), inputs.pack(shaped)


def pull_stack(
    graph: Graph, cotangents: Callable[[int, int], Tensor], count: int, chunk_size: int | None
) -> list[Tensor]:
    """Pull V = count cotangents back, [N, V, *D] for each input.

    Args:
        graph: what they are pulled along.
        cotangents: gives numbers start to stop of them, [stop - start, N, *K], when needed: all V
            at once might not fit.
        count: V.
        chunk_size: how many are pulled back together.
    """
    chunk = chunk_size or default_chunk(graph)
    pieces = _pieces(graph, cotangents, count, chunk)
    if graph.keep and count:
        return [torch.cat(parts, 1) for parts in zip(*pieces, strict=True)]
    # Without a graph to keep, each piece goes to its place at once: no second copy of the result.
    stacks = [point.new_empty(len(point), count, *point.shape[1:]) for point in graph.points]
    done = 0
    for parts in pieces:
        width = parts[0].shape[1]
        for stack, part in zip(stacks, parts, strict=True):
            stack[:, done : done + width] = part
        done += width
    return stacks


def _pieces(
    graph: Graph, cotangents: Callable[[int, int], Tensor], count: int, chunk: int
) -> Iterator[list[Tensor]]:
    """[N, C, *D] for each input, in the order of the cotangents."""
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        yield from _pull_chunk(graph, cotangents(start, stop), last=stop == count)


def default_chunk(graph: Graph) -> int:
    """How many cotangents to pull back at once, by the size of the inputs.

    Batching saves operator calls and costs cache: measured on one CPU core (MLPs of width 20 to
    256, small conv nets), 8 to 64 at once is 2 to 5 times as fast as the loop for a few rows, and
    the loop is 1.2 to 3 times as fast for a few thousand. They meet near 2^16 input numbers in
    flight, near 2^13 where the graph is kept and differentiated again; below 4 at once batching
    never paid.
    """
    numbers = sum(point.numel() for point in graph.points)
    in_flight = 2**13 if graph.keep else 2**16
    chunk = min(64, in_flight // max(numbers, 1))
    return chunk if chunk >= 4 else 1


def unit_cotangents(y: Tensor, start: int, stop: int) -> Tensor:
    """The cotangents that pick outputs start to stop of each row, [stop - start, N, *K]."""
    unit = y.new_zeros(stop - start, _outputs(y))
    unit.diagonal(start).fill_(1)
    return unit.reshape(stop - start, 1, *y.shape[1:]).expand(stop - start, *y.shape)


def _outputs(y: Tensor) -> int:
    return prod(y.shape[1:])


def _pull_chunk(graph: Graph, cotangents: Tensor, *, last: bool) -> Iterator[list[Tensor]]:
    """One piece [N, C, *D], or C pieces if an operator cannot be batched."""
    if len(cotangents) > 1:
        try:
            together = graph.pull_many(cotangents)
        except RuntimeError:
            # A backward with its own numpy, .item() or random numbers cannot be batched. Should
            # the fault lie elsewhere, the loop meets it again and raises it plainly.
            pass
        else:
            yield [pulled.transpose(0, 1) for pulled in together]
            return
    final = len(cotangents) - 1 if last else len(cotangents)
    for i, u in enumerate(cotangents):
        yield [pulled.unsqueeze(1) for pulled in graph.pull(u, retain=i < final)]
