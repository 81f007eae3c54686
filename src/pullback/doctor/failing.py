"""An engine that raised: which tensor carried the graph, who freed it, where it was used."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pullback.doctor import _torch
from pullback.doctor.carriers import assigned_at, edges_into_freed, make_carrier
from pullback.doctor.examination import Examination
from pullback.doctor.lines import Lines
from pullback.doctor.owners import Held, rank
from pullback.doctor.records import Backward, Cut, Failure
from pullback.doctor.sites import Site
from pullback.doctor.walk import walk

if TYPE_CHECKING:
    from pullback.doctor.recorder import Call, ThreadRecord

_MOST_CARRIERS = 8


def diagnose_failure(
    message: str,
    call: "Call",
    here: Held,
    record: "ThreadRecord",
    lines: Lines,
    examination: Examination,
    writes: dict[int, Site],
    *,
    full: bool,
) -> Failure | None:
    """The facts of a failure, or None when it is no fault of a graph's life."""
    common: dict[str, Any] = {
        "backward": call.backward,
        "nodes": len(call.found.nodes),
        "steps": tuple(record.steps),
        "filled": _filled(call),
        "lines": full,
    }
    if "second time" in message or "have already been freed" in message:
        return _freed(call, here, record, lines, common)
    if "modified by an inplace operation" in message:
        return _modified(call, here, record, lines, writes, common)
    if "does not require grad" in message:
        return _disconnected(call, here, examination, common)
    return None


def _filled(call: "Call") -> tuple[int, int]:
    variables = [v for leaf in call.found.leaves if (v := _torch.variable_of(leaf)) is not None]
    if call.backward.of_grad:
        return 0, len(variables)
    return sum(v.grad is not None for v in variables), len(variables)


def freed_by(record: "ThreadRecord") -> dict[int, Backward]:
    """For each node that an earlier trip visited and did not keep: the latest such trip."""
    found: dict[int, Backward] = {}
    for trip in record.backwards:
        if trip.frees:
            found.update(dict.fromkeys(trip.visited, trip))
            found.update(dict.fromkeys(trip.under, trip))
    return found


def _freed(
    call: "Call", here: Held, record: "ThreadRecord", lines: Lines, common: dict[str, Any]
) -> Failure:
    freed = freed_by(record)
    for node, number in call.roots:
        trip = freed.get(_torch.sequence_of(node))
        if trip is not None and _torch.sequence_of(node) in trip.roots:
            path = next(iter(sorted(here.paths_of(node, number), key=rank)), "")
            root = make_carrier(node, number, None, trip, call, here, record, lines, path)
            return Failure("freed", carriers=(root,), same_root=trip, **common)
    edges = edges_into_freed(call, record, freed)
    carriers = [
        make_carrier(edge.producer, edge.number, edge.consumer, trip, call, here, record, lines)
        for edge, trip in edges[:_MOST_CARRIERS]
    ]
    # A named carrier tells more than an unnamed one; a list that grows explains all its items.
    carriers.sort(
        key=lambda c: (not c.path, c.lengths is None, c.binding != "same", rank(c.path)[1], c.path)
    )
    recomputed = any("Checkpoint" in node.name() for node in call.found.nodes)
    return Failure("freed", carriers=tuple(carriers), recomputed=recomputed, **common)


def _modified(
    call: "Call",
    here: Held,
    record: "ThreadRecord",
    lines: Lines,
    writes: dict[int, Site],
    common: dict[str, Any],
) -> Failure:
    everything = walk([node for node, _ in call.roots])
    for node, sequence in everything.nodes.items():
        tensor = _torch.modified_tensor(node)
        if tensor is None:
            continue
        path, kind = _owner_by_storage(tensor, node, here)
        made = lines.of(sequence)
        turn = record.turn_of(sequence)
        writer = writes.get(tensor.data_ptr())
        if kind == "parameter" and record.steps:
            writer = record.steps[-1]
        path = path or assigned_at(writer)
        trip = record.backwards[-1] if record.backwards else None
        carrier = None
        if turn < call.backward.turn:
            carriers = [
                make_carrier(e.producer, e.number, e.consumer, trip, call, here, record, lines)
                for e in call.found.below
            ]
            carrier = next(iter(sorted(carriers, key=lambda c: not c.path)), None)
        return Failure(
            "modified",
            modified=(path, kind, writer),
            consumer=node.name(),
            consumed=made,
            carriers=(carrier,) if carrier is not None else (),
            **common,
        )
    return Failure("modified", **common)


def _owner_by_storage(tensor: Tensor, node: Any, here: Held) -> tuple[str, str]:
    where = tensor.untyped_storage().data_ptr()
    found = [
        (path, t)
        for path, t in here.tensors
        if t.numel() and t.untyped_storage().data_ptr() == where
    ]
    if not found:
        leaves = [v for n in walk([node]).leaves if (v := _torch.variable_of(n)) is not None]
        for leaf in leaves:
            if leaf.untyped_storage().data_ptr() == where:
                return here.parameters.get(id(leaf), "a parameter"), "parameter"
        return "", "tensor"
    path, owner = min(found, key=lambda pair: rank(pair[0]))
    if owner.is_leaf and owner.requires_grad:
        return path, "parameter"
    return path, "buffer" if path in here.buffers else "tensor"


def _disconnected(
    call: "Call", here: Held, examination: Examination, common: dict[str, Any]
) -> Failure:
    cut: Cut | None = None
    path = ""
    for output in call.outputs:
        if isinstance(output, Tensor) and output.grad_fn is None:
            cut = examination.cuts.cut_of(output)
            names = [p for p, t in here.tensors if t is output]
            path = min(names, key=rank) if names else ""
            break
    frozen = not here.parameters
    return Failure(
        "disconnected", cut=cut, modified=(path, "frozen" if frozen else "", None), **common
    )
