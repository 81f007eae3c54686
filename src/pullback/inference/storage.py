"""A run on disk: tensors as safetensors, the rest as JSON, the folder there whole or not at all.

    run.json               what was decided: arguments, layout, batches, modes, digests
    tensors.safetensors    outputs, cotangents, fingerprints, the place of every row, random streams
    inputs.safetensors     the inputs, if they lay in memory

Nothing is unpickled. Containers of outputs are not written: the rows that are recomputed on
loading show them.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pullback.errors import FileError, ModelFileError
from pullback.inference.arguments import Arguments
from pullback.inference.arrays import ArraySource
from pullback.inference.keep import KeepBudget
from pullback.inference.plan import Task
from pullback.inference.progress import Progress, Report
from pullback.inference.recompute import Network, Replay
from pullback.inference.run import Inference
from pullback.inference.setting import Setting
from pullback.inference.sources import Source, open_source
from pullback.inference.stored_rows import read_recording, write_recording
from pullback.inference.verify import Tolerance
from pullback.inference.weights import ModelRecord

FORMAT = 1


def save(run: Inference, folder: str | Path) -> None:
    """See `Inference.save`."""
    from safetensors.torch import save_file

    folder = Path(folder)
    if not folder.parent.is_dir():
        raise FileError(f"{folder}: there is no folder {folder.parent}; make it first")
    replay, rules = run._replay, run._rules
    arguments, setting = replay.network.arguments, replay.network.setting
    tensors, layout = write_recording(replay.recording)
    facts = {
        "format": FORMAT,
        "weights": replay.record.digest,
        "digests": replay.record.digests,
        "modes": replay.record.modes,
        "moved": replay.record.moved,
        "arguments": {
            "kind": arguments.kind,
            "keys": arguments.keys,
            "wrt": arguments.wrt,
            "single": arguments.single,
        },
        "device": str(setting.device),
        "autocast": None if setting.autocast is None else str(setting.autocast),
        "tolerance": [replay.tolerance.allowed, replay.tolerance.source],
        "smallest": replay.smallest,
        "batch_size": rules.batch_size,
        "coupled": replay.coupled,
        "recording": layout,
    }
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        save_file(tensors, part / "tensors.safetensors")
        if replay.source.in_memory:
            values = [torch.as_tensor(value) for value in replay.source.values]
            held = {str(i): value.detach().contiguous() for i, value in enumerate(values)}
            # Cloned: safetensors refuses two inputs that share memory.
            copies = {key: value.clone() for key, value in held.items()}
            save_file(copies, part / "inputs.safetensors")
        (part / "run.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        _replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load(
    folder: str | Path,
    model: Callable[..., Any],
    inputs: Any = None,
    *,
    unpack: Callable[[Any], Any] | None = None,
    device: torch.device | str | None = None,
    progress: bool | Report | None = None,
) -> Inference:
    """See `Inference.load`."""
    from safetensors.torch import load_file

    folder = Path(folder)
    facts = _read_facts(folder)
    setting = Setting(torch.device(device or facts["device"]), _dtype(facts["autocast"]))
    kept = facts["arguments"]
    arguments = Arguments(
        kept["kind"], tuple(kept["keys"]), tuple(kept["wrt"]), bool(kept["single"])
    )
    source = _source(folder, arguments, inputs, unpack)
    tensors = load_file(folder / "tensors.safetensors", device=str(setting.device))
    recording = read_recording(tensors, facts["recording"])
    if len(source) != recording.n:
        raise ModelFileError(
            f"{folder}: expected inputs of {recording.n} rows, got {len(source)}. Hand in those "
            "that infer was given."
        )
    record = ModelRecord(model)
    record.set_modes(facts["modes"])
    record.settle()
    record.moved = facts["moved"]
    if record.digest != facts["weights"]:
        raise ModelFileError(
            f"{folder}: the model's weights are not those of the saved run "
            f"({_first_difference(record.digests, facts['digests'])}). Load the checkpoint that "
            "was used then."
        )
    replay = Replay(
        Network(model, arguments, setting),
        source,
        recording,
        record,
        Tolerance(*facts["tolerance"]),
        facts["smallest"],
        facts["coupled"],
    )
    _probe(replay)
    budget = KeepBudget("none", setting.device)
    return Inference(replay, facts["batch_size"], budget, Progress(progress))


def _probe(replay: Replay) -> None:
    """Recompute a few rows: the container of the outputs is seen, and they are verified."""
    first = replay.recording.batches[0]
    whole = replay.coupled or first.random is not None
    rows = first.rows if whole else first.rows[: replay.smallest]
    task = Task(rows, (), first if whole else None)
    with replay.opened("Inference.load", [task]):
        with replay.record.once_more(), torch.no_grad():
            values = replay.network.setting.move(replay.source.fetch(rows))
            if first.random is not None:
                first.random.install()
            _, layout = replay.network.outputs(values)
        replay.recording.set_layout(layout)
        with replay.graph("Inference.load", task, inputs=False):
            pass


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{folder}: expected a folder written by Inference.save, with a run.json ({error})"
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ModelFileError(
            f"{folder}: expected a saved run of format {FORMAT}; this one was written by another "
            "version of pullback"
        )
    return facts


def _source(
    folder: Path, arguments: Arguments, inputs: Any, unpack: Callable[[Any], Any] | None
) -> Source:
    from safetensors.torch import load_file

    if inputs is not None:
        return open_source(inputs, unpack)
    path = folder / "inputs.safetensors"
    if not path.is_file():
        raise ModelFileError(
            f"{folder}: the inputs were read from a file, a data set or a loader, and are not part "
            "of the saved run. Hand them in: Inference.load(folder, model, inputs)."
        )
    stored = load_file(path)
    return ArraySource(arguments, [stored[str(i)] for i in range(len(stored))])


def _replace(part: Path, folder: Path) -> None:
    """Move a finished folder into place; an older one goes only once the new one is there."""
    old = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.old")
    if folder.exists():
        os.replace(folder, old)
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)


def _dtype(name: str | None) -> torch.dtype | None:
    return None if name is None else getattr(torch, name.removeprefix("torch."))


def _first_difference(have: dict[str, str], want: dict[str, str]) -> str:
    names = [name for name in {**want, **have} if have.get(name) != want.get(name)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
