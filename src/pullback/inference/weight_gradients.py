"""A loss over all rows back-propagates into the weights exactly, batch by batch.

NOTE [gradient caching]
With outputs y_i = f_θ(x_i) and a loss L(y_1, …, y_N) that couples all rows,

    dL/dθ = Σ_i (∂L/∂y_i) (∂y_i/∂θ).

The cotangents c_i = ∂L/∂y_i need the outputs alone; given them, the sum splits into batches, each
recomputed with a graph and walked once from c_i. Nothing is approximated, and one batch's graph is
all that is held (Gao, Zhang, Han & Callan 2021, "Scaling Deep Contrastive Learning Batch Size
under Memory Limited Setup").
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

import torch
from torch import Tensor

from pullback._state import gradients_kept_on_error
from pullback._torch import leaves_of
from pullback.errors import InputError, UnconnectedInputError
from pullback.inference.accumulated import answer, request_for
from pullback.inference.plan import Rules, Task, plan
from pullback.inference.progress import Progress
from pullback.inference.pulling import Board, deliver, gathered_cotangents
from pullback.inference.recompute import Replay
from pullback.inference.recording import Graph, Recording
from pullback.inference.rows import RowValues
from pullback.inference.weights import without_reduction

API = "run.backward"


def backward(
    replay: Replay, loss: Tensor, rules: Rules, progress: Progress, *, inputs: bool
) -> list[RowValues] | None:
    """See `Inference.backward`; returns input gradients [N, *D] if asked for."""
    outputs = replay.recording.tensors
    if loss.numel() != 1:
        raise InputError(
            f"{API}: expected a scalar loss, got {list(loss.shape)}. Sum it (or take the mean, "
            "which scales every gradient by 1/N)."
        )
    if not any(leaf is output for leaf in leaves_of(loss) for output in outputs):
        raise UnconnectedInputError(
            f"{API}: the loss does not depend on run.outputs. Compute it from them, with grad mode "
            "on and without detach."
        )
    module = replay.record.module
    weights = [] if module is None else list(module.parameters())
    others = [leaf for leaf in leaves_of(loss) if not any(leaf is output for output in outputs)]
    with gradients_kept_on_error(chain(weights, others)):
        with replay.network.setting.without_autocast():
            cotangents = _cotangents(replay.recording, loss)
        return _walk(replay, cotangents, rules, progress, inputs)


def _cotangents(recording: Recording, loss: Tensor) -> list[RowValues | None]:
    """∂L/∂y by row. A plain backward, so that weights inside the loss get their gradient too."""
    outputs = recording.tensors
    before = [output.grad for output in outputs]
    try:
        for output in outputs:
            output.grad = None
        loss.backward()
        return [store.gradients() for store in recording.outputs]
    finally:
        for output, grad in zip(outputs, before, strict=True):
            output.grad = grad


def _walk(
    replay: Replay,
    cotangents: Sequence[RowValues | None],
    rules: Rules,
    progress: Progress,
    inputs: bool,
) -> list[RowValues] | None:
    recording = replay.recording
    everything = torch.arange(recording.n)
    request = request_for(replay, cotangents, everything)
    if not len(request.rows):
        # One row at least: every process of a parallel run has to take part in the reduction.
        request = request_for(replay, cotangents, everything, also=[0])
    if not bool(recording.done[request.rows].all()):
        raise InputError(
            f"{API}: the loss uses rows that were not inferred, since the first pass was "
            "interrupted. Compute it from run.outputs[run.done]."
        )
    board = Board([request])
    tasks = plan(recording, board.rows, board.owners, rules)
    with replay.opened(API, tasks), progress.over(len(board.rows), API) as advance:
        for task, synchronised in _reducing_once(replay.network.model, tasks):
            with synchronised, replay.graph(API, task, inputs=inputs) as graph:
                for walk in task.walks:
                    shares = board.shares(walk)
                    gradients = _accumulate(graph, gathered_cotangents(shares, graph.outputs), task)
                    if inputs:
                        deliver(shares, gradients)
                    advance(len(walk.positions))
    return answer(replay, request, everything) if inputs else None


def _accumulate(graph: Graph, cotangents: Sequence[Tensor | None], task: Task) -> list[Tensor]:
    """Walk back into .grad of the weights; the gradients of the inputs, if the graph has them."""
    live = [
        (y, c)
        for y, c in zip(graph.outputs, cotangents, strict=True)
        if c is not None and y.requires_grad
    ]
    if not live:
        raise UnconnectedInputError(
            f"{API}: the outputs that the loss uses depend on no weight that requires a gradient. "
            "Are all parameters frozen, or does the network run under no_grad?"
        )
    outputs, given = zip(*live, strict=True)
    torch.autograd.backward(outputs, given, retain_graph=task.kept)
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in graph.inputs]
    for leaf in graph.inputs:
        leaf.grad = None  # a kept graph is walked again, and must begin from nothing
    return gradients


def _reducing_once(
    model: Callable[..., object], tasks: Sequence[Task]
) -> Iterator[tuple[Task, AbstractContextManager[object]]]:
    """Each task, and the context to run it in: a data-parallel model reduces with the last."""
    for task in tasks:
        yield task, nullcontext() if task is tasks[-1] else without_reduction(model)


def kept_graphs_usable(replay: Replay) -> bool:
    """Kept graphs lead to the weights as they are now, and no stray NaN reaches them."""
    module = replay.record.module
    if getattr(replay.network.model, "no_sync", None) is not None:
        return False  # a reducer counts forwards, and those of kept graphs are long past
    trainable = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    graphs = [b.graph for b in replay.recording.batches if b.graph is not None]
    if not graphs or not all(bool(t.isfinite().all()) for t in replay.recording.tensors):
        return False
    reached = {id(leaf) for y in graphs[0].outputs for leaf in leaves_of(y)}
    return all(id(weight) in reached for weight in trainable)
