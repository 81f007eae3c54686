"""A recording as named tensors and plain facts, and back."""

from typing import Any

import torch
from torch import Tensor

from pullback.errors import ModelFileError
from pullback.inference.randomness import RandomState
from pullback.inference.recording import RecordedBatch, Recording
from pullback.inference.rows import RowValues
from pullback.inference.tree import Layout

_PLACES = ("batch_of", "slot_of", "group_of", "fingerprints")


def write_recording(recording: Recording) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors for a safetensors file, and what else there is for JSON."""
    tensors = {f"rows.{name}": getattr(recording, name) for name in _PLACES}
    randoms: list[dict[str, Any] | None] = []
    for i, (store, sizes) in enumerate(zip(recording.outputs, recording.sizes, strict=True)):
        tensors[f"sizes.{i}"] = sizes
        for j, tensor in enumerate(store.tensors):
            tensors[f"outputs.{i}.{j}"] = tensor.detach()
            if tensor.grad is not None:
                tensors[f"cotangents.{i}.{j}"] = tensor.grad
    for number, batch in enumerate(recording.batches):
        randoms.append(_write_random(batch.random, number, tensors))
    facts = {
        "rows": recording.n,
        "ragged": [store.ragged for store in recording.outputs],
        "outputs": list(recording.layout.names),
        "groups": [[list(shape) for shape in group] for group in recording.groups],
        "dtypes": [str(dtype) for dtype in recording.dtypes],
        "random": randoms,
    }
    # Copies: safetensors refuses tensors that share memory, or are not contiguous.
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}, facts


def read_recording(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Recording:
    """The recording, but for the container of its outputs.

    Raises:
        ModelFileError: a tensor is missing.
    """
    try:
        recording = Recording(facts["rows"])
        for name in _PLACES:
            setattr(recording, name, tensors[f"rows.{name}"].cpu())
        for i, ragged in enumerate(facts["ragged"]):
            count = recording.n if ragged else 1
            values = [tensors[f"outputs.{i}.{j}"] for j in range(count)]
            recording.outputs.append(RowValues(recording.n, values if ragged else values[0]))
            recording.sizes.append(tensors[f"sizes.{i}"].cpu())
        recording.set_groups(facts["groups"], [_dtype(name) for name in facts["dtypes"]])
        for number, stored in enumerate(facts["random"]):
            rows = (recording.batch_of == number).nonzero().flatten()
            rows = rows[recording.slot_of[rows].argsort()]
            random = _read_random(stored, number, tensors)
            recording.batches.append(RecordedBatch(rows, random))
    except KeyError as error:
        raise ModelFileError(f"the saved run lacks {error}; was its folder edited?") from error
    recording.set_layout(Layout(None, facts["outputs"]))
    recording.settle(sized=True)
    for name, grad in tensors.items():
        kind, _, place = name.partition(".")
        if kind == "cotangents":
            i, j = map(int, place.split("."))
            recording.outputs[i].tensors[j].grad = grad
    return recording


def _write_random(
    state: RandomState | None, number: int, tensors: dict[str, Tensor]
) -> dict[str, Any] | None:
    if state is None:
        return None
    for device, stream in state.torch.items():
        tensors[f"random.{number}.torch.{device}"] = stream
    kind, keys, *rest = state.numpy
    tensors[f"random.{number}.numpy"] = torch.from_numpy(keys.astype("int64"))
    tensors[f"random.{number}.python"] = torch.tensor(state.python[1])
    return {
        "devices": list(state.torch),
        "numpy": [kind, *rest],
        "python": [state.python[0], state.python[2]],
    }


def _read_random(
    stored: dict[str, Any] | None, number: int, tensors: dict[str, Tensor]
) -> RandomState | None:
    if stored is None:
        return None
    torch_streams = {d: tensors[f"random.{number}.torch.{d}"].cpu() for d in stored["devices"]}
    kind, *rest = stored["numpy"]
    keys = tensors[f"random.{number}.numpy"].cpu().numpy().astype("uint32")
    version, gauss = stored["python"]
    python = (version, tuple(tensors[f"random.{number}.python"].tolist()), gauss)
    return RandomState(torch_streams, (kind, keys, *rest), python)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name.removeprefix("torch."))
    assert isinstance(found, torch.dtype)
    return found
