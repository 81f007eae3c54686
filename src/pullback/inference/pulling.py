"""Cotangents on outputs become gradients with respect to inputs, request by request."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pullback._torch import leaves_of
from pullback.errors import UnconnectedInputError
from pullback.inference.plan import Rules, Walk, plan
from pullback.inference.progress import Progress
from pullback.inference.recompute import Replay
from pullback.inference.recording import Graph
from pullback.inference.rows import RowValues
from pullback.inference.weights import without_reduction


class Request:
    """Rows [R], their cotangents, and room for their gradients.

    Attributes:
        cotangents: one store of R rows for each output tensor; None where the loss is not
            connected to it.
        gradients: one store of R rows for each input in `wrt`.
        left: rows whose gradient has not been written.
    """

    def __init__(self, rows: Tensor, cotangents: Sequence[RowValues | None], inputs: int) -> None:
        self.rows = rows
        self.cotangents = list(cotangents)
        self.gradients = [RowValues(len(rows), blank=False) for _ in range(inputs)]
        self.left = len(rows)


class Share(NamedTuple):
    """The part of a walk that serves one request: places in the request, and in the graph."""

    request: Request
    inside: Tensor
    slots: Tensor


class Board:
    """The requests served together, seen as one list of positions."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.rows = torch.cat([request.rows for request in requests])
        counts = torch.tensor([len(request.rows) for request in requests])
        self.owners = torch.repeat_interleave(torch.arange(len(requests)), counts)
        self._starts = counts.cumsum(0) - counts

    def shares(self, walk: Walk) -> list[Share]:
        """Which requests a walk serves."""
        owners = self.owners[walk.positions]
        shares = []
        for owner in owners.unique().tolist():
            mine = owners == owner
            inside = walk.positions[mine] - self._starts[owner]
            shares.append(Share(self.requests[owner], inside, walk.slots[mine]))
        return shares


def gathered_cotangents(shares: Sequence[Share], outputs: Sequence[Tensor]) -> list[Tensor | None]:
    """One tensor for each output of a graph, zero where nothing was asked; None if all are."""
    gathered: list[Tensor | None] = [None] * len(outputs)
    for request, inside, slots in shares:
        for i, store in enumerate(request.cotangents):
            if store is None:
                continue
            taken = store.take(inside)
            if torch.equal(slots, torch.arange(len(outputs[i]))):
                gathered[i] = taken
                continue
            if gathered[i] is None:
                gathered[i] = torch.zeros_like(outputs[i])
            gathered[i][slots.to(taken.device)] = taken  # type: ignore[index]
    return gathered


def deliver(shares: Sequence[Share], gradients: Sequence[Tensor]) -> None:
    """Write the gradients of one walk to the requests they belong to."""
    for request, inside, slots in shares:
        leading = torch.equal(slots, torch.arange(len(slots)))  # then no copy is needed
        for store, gradient in zip(request.gradients, gradients, strict=True):
            mine = gradient[: len(slots)] if leading else gradient[slots.to(gradient.device)]
            store.put(inside, mine)
        request.left -= len(inside)


def pull(
    api: str, replay: Replay, requests: Sequence[Request], rules: Rules, progress: Progress
) -> None:
    """Fill the gradients of every request; an interrupt leaves those that are complete.

    Raises:
        ReplayError, CoupledRowsError: see `Replay.graph`.
        UnconnectedInputError: no output with a cotangent depends on the inputs.
    """
    for request in requests:
        request.left = len(request.rows)
    board = Board(requests)
    if not len(board.rows):
        return
    tasks = plan(replay.recording, board.rows, board.owners, rules)
    with replay.opened(api, tasks), progress.over(len(board.rows), api) as advance:
        for task in tasks:
            with without_reduction(replay.network.model), replay.graph(api, task) as graph:
                for walk in task.walks:
                    again = task.kept or walk is not task.walks[-1]
                    shares = board.shares(walk)
                    _check_connected(api, shares, graph)
                    cotangents = gathered_cotangents(shares, graph.outputs)
                    deliver(shares, _input_gradients(api, replay, graph, cotangents, again))
                    advance(len(walk.positions))


def _check_connected(api: str, shares: Sequence[Share], graph: Graph) -> None:
    """Each request on its own: beside others, zeros would pass for a gradient."""
    for request, *_ in shares:
        pairs = zip(request.cotangents, graph.outputs, strict=True)
        if not any(store is not None and y.requires_grad for store, y in pairs):
            raise UnconnectedInputError(
                f"{api}: the outputs that the loss uses do not depend on the inputs: inside the "
                "network they were detached, computed under no_grad, or made integer (argmax). "
                "There is no gradient, not even a zero one."
            )


def _input_gradients(
    api: str, replay: Replay, graph: Graph, cotangents: Sequence[Tensor | None], again: bool
) -> list[Tensor]:
    live = [
        (y, c)
        for y, c in zip(graph.outputs, cotangents, strict=True)
        if c is not None and y.requires_grad
    ]
    outputs, given = zip(*live, strict=True)
    gradients = torch.autograd.grad(
        outputs, graph.inputs, given, retain_graph=again, allow_unused=True
    )
    return [
        _zeros(api, replay, graph, i) if gradient is None else gradient
        for i, gradient in enumerate(gradients)
    ]


def _zeros(api: str, replay: Replay, graph: Graph, i: int) -> Tensor:
    """Zeros for an input that other outputs use; an input that none uses is an error."""
    leaf = graph.inputs[i]
    if not any(found is leaf for y in graph.outputs for found in leaves_of(y)):
        name = replay.network.arguments.name(replay.network.arguments.wrt[i])
        raise UnconnectedInputError(
            f"{api}: no output of the network depends on {name}, so it has no gradient (not even "
            "a zero one). Leave it out of wrt, or look for a detach in the network."
        )
    return torch.zeros_like(leaf)
