"""infer(): one pass over everything, holding no graph."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.errors import CoupledRowsError, DtypeError, InputError
from pullback.inference.arguments import Key
from pullback.inference.fingerprint import row_fingerprints
from pullback.inference.heap import hold_freed_memory
from pullback.inference.keep import KeepBudget
from pullback.inference.plan import Task
from pullback.inference.progress import Progress, Report
from pullback.inference.randomness import RandomState, kept_streams, random_state
from pullback.inference.recompute import Network, Replay
from pullback.inference.recording import Graph, RecordedBatch, Recording
from pullback.inference.run import Inference
from pullback.inference.setting import read_setting
from pullback.inference.sources import Source, open_source
from pullback.inference.tree import Layout
from pullback.inference.verify import Tolerance, derived_tolerance
from pullback.inference.weights import ModelRecord, batch_coupled, module_of


@torch.inference_mode(False)  # tensors made inside it could never become leaves
def infer(
    model: Callable[..., Any],
    inputs: Any,
    *,
    batch_size: int | None = None,
    wrt: Key | Sequence[Key] | None = None,
    unpack: Callable[[Any], Any] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | bool | None = None,
    keep: str | int = "none",
    coupled: str | None = None,
    smallest_batch: int = 8,
    tolerance: float | None = None,
    progress: bool | Report | None = None,
) -> Inference:
    """Run a network over all rows now; pull gradients of chosen rows back later.

    y_i = f(x_i) for i = 0 … N-1 in batches, without a graph. The run that comes back has all
    outputs as a leaf; losses on any of their rows cost next to nothing, and their gradients with
    respect to the inputs are computed for just the rows asked for, by running these again. A
    recomputed output is compared with the recorded one, so what changed in between is an error,
    not a wrong gradient (NOTE [how far apart may two runs of the same rows be]).

    Rows must not depend on each other. Dropout is handled exactly: the batch is then the unit of
    recomputing, with its random numbers replayed. BatchNorm in train mode takes its statistics from
    the batch and is refused, unless `coupled="batch"`: then batches of the first pass are the unit,
    and the gradient of a row includes what it does to the others of its batch, and only those.

    Memory beyond inputs, outputs and the gradients returned does not grow with N. Nothing of the
    caller's changes; running statistics advance once, by the first pass, as do random streams.

    Args:
        model: a module or a function with independent rows, [N, *D] -> tensors [N, ...] in any
            container (tuple, dict, dataclass).
        inputs: a tensor or numpy array [N, *D] (also memory-mapped), a tuple (called f(*inputs)) or
            dict (f(**inputs)) of them, a list of rows, a map-style Dataset, or a DataLoader that
            does not shuffle. Rows of a list or Dataset may differ in shape: rows of one shape are
            batched together, none is padded. Integer inputs are passed on.
        batch_size: rows run together; default 64, or the loader's. On a CPU 32 to 128 is fastest.
        wrt: index or name of the inputs that get gradients; default all floating ones.
        unpack: takes the network's inputs from an item of a Dataset or a batch of a DataLoader,
            e.g. lambda pair: pair[0] to leave a label out.
        device: where batches run; default where the model lies. Outputs stay there.
        autocast: dtype to autocast to, False for none; default what surrounds this call.
            Recomputing uses the same, whatever surrounds it then.
        keep: graphs to keep instead of recomputing them: "none", a number of bytes, or "auto" for a
            quarter of the free memory. See `Inference.explain`.
        coupled: "batch" if the rows of a batch depend on each other.
        smallest_batch: rows recomputed together at the least (see `Inference.input_gradients`).
        tolerance: allowed difference of recomputed outputs, relative to the row's size; default
            derived from the network's depth, width and precision.
        progress: None for a bar on a terminal in long runs, False for none, or a callable that gets
            (rows done, rows in all).

    Raises:
        InputError, ShapeError, DtypeError: inputs, outputs or options that do not fit.
        CoupledRowsError: BatchNorm in train mode, without coupled="batch".
        KeyboardInterrupt: with the batches done so far as its attribute `run`.

    >>> net = torch.nn.Linear(2, 3)
    >>> run = infer(net, torch.ones(5, 2))
    >>> run.outputs.shape
    torch.Size([5, 3])
    >>> run.outputs[[1, 4], 0].sum().backward()
    >>> bool((run.input_gradients([4]) == net.weight[0]).all())
    True
    """
    _check_options(batch_size, smallest_batch, coupled)
    source = open_source(inputs, unpack)
    if batch_size is None or source.batch_size is not None:
        batch_size = source.batch_size or 64
    setting = read_setting(model, device, autocast)
    network = Network(model, source.arguments.choosing(wrt, source.values), setting)
    _refuse_batch_statistics(model, coupled)
    shown = Progress(progress)
    # Batches that depend on running statistics may not be walked after those have moved on.
    budget = KeepBudget("none" if coupled else keep, setting.device)
    record = ModelRecord(model)
    recording = Recording(len(source))

    def finished() -> Inference:
        recording.settle()
        record.settle()
        dtypes = [tensor.dtype for tensor in recording.tensors]
        derived = derived_tolerance(module_of(model), dtypes, setting)
        allowed = derived if tolerance is None else Tolerance(tolerance, "as asked for")
        replay = Replay(
            network, source, recording, record, allowed, smallest_batch, coupled is not None
        )
        return Inference(replay, batch_size, budget, shown)

    try:
        _run(network, source, recording, budget, batch_size, shown)
    except KeyboardInterrupt as stop:
        if recording.batches:
            stop.run = finished()  # type: ignore[attr-defined]
            stop.add_note(
                "infer: the batches done so far are the attribute `run` of this exception"
            )
        raise
    if not any(tensor.is_floating_point() for tensor in recording.tensors):
        raise DtypeError(
            "infer: expected a floating-point output, got "
            f"{[str(tensor.dtype) for tensor in recording.tensors]}: an argmax has no derivative. "
            "Return the scores themselves, and take the argmax of run.outputs."
        )
    run = finished()
    _check_company(run._replay)
    return run


def _run(
    network: Network,
    source: Source,
    recording: Recording,
    budget: KeepBudget,
    batch_size: int,
    progress: Progress,
) -> None:
    device = network.setting.device
    if device.type == "cpu":
        hold_freed_memory()
    if source.reads:
        _check_repeatable(source, device)
    before_reading = random_state(device)
    with progress.over(len(source), "infer") as advance:
        for rows, values in source.batches(batch_size):
            before = random_state(device) if source.reads else before_reading
            if source.reads and not (rows[0] == 0 or before.same_as(before_reading)):
                raise InputError(_AUGMENTS.format(row=int(rows[0])))
            fingerprints = row_fingerprints(*values)
            moved = network.setting.move(values)
            outputs, layout, graph = _forward(network, moved, budget)
            after = random_state(device)
            batch = RecordedBatch(rows, _drawn(before, after), graph)
            recording.add(batch, values, fingerprints, outputs, layout)
            before_reading = after
            advance(len(rows))


def _forward(
    network: Network, values: list[Tensor], budget: KeepBudget
) -> tuple[list[Tensor], Layout, Graph | None]:
    if budget.admits(values):
        graph, layout = network.graph(values)
        return graph.outputs, layout, graph if budget.enter(values, graph) else None
    with torch.no_grad():
        outputs, layout = network.outputs(values)
    return outputs, layout, None


def _drawn(before: RandomState, after: RandomState) -> RandomState | None:
    return None if before.same_as(after) else before


def _check_company(replay: Replay) -> None:
    """Run some rows of a kept graph in other company: nothing else compares what is kept.

    Raises:
        CoupledRowsError: they come out differently.
    """
    for batch in replay.recording.batches:
        if batch.graph is not None and batch.random is None and len(batch.rows) > 1:
            task = Task(batch.rows[: len(batch.rows) // 2][: replay.smallest], ())
            with replay.opened("infer", [task]), replay.graph("infer", task, inputs=False):
                return


_AUGMENTS = (
    "infer: reading row {row} again gives other values, or draws random numbers (augmentation?), "
    "so that it could not be recomputed. Turn the augmentation off, draw it once beforehand, or "
    "seed it by the row's number."
)


def _check_repeatable(source: Source, device: torch.device) -> None:
    """Read the first row twice, on streams that move on in between.

    Raises:
        InputError: the two differ.
    """
    with kept_streams(device):
        first, second = (row_fingerprints(*source.fetch(torch.tensor([0]))) for _ in range(2))
    if not torch.equal(first, second):
        raise InputError(_AUGMENTS.format(row=0))


def _refuse_batch_statistics(model: Callable[..., Any], coupled: str | None) -> None:
    layers = batch_coupled(module_of(model))
    if layers and coupled is None:
        others = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        raise CoupledRowsError(
            f"infer: the layer {layers[0]}{others} takes its statistics from the batch "
            "(BatchNorm in train mode), so every row depends on the others of its batch. Call "
            "model.eval(); or say coupled='batch', and batches of the first pass are recomputed "
            "whole: gradients then include what a row does to the others of its batch, and "
            "depend on the batch size."
        )


def _check_options(batch_size: int | None, smallest_batch: int, coupled: str | None) -> None:
    for name, value in (("batch_size", batch_size), ("smallest_batch", smallest_batch)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"infer: expected {name} to be a positive integer, got {value!r}")
    if coupled not in (None, "batch"):
        raise InputError(f"infer: expected coupled to be None or 'batch', got {coupled!r}")
