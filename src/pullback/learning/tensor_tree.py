"""Nested state as JSON and safetensors: what pickle would do, without running code on loading.

A tree of dicts, lists, tuples, tensors, numbers, strings, booleans and None becomes one JSON value
in which each tensor is a reference, and one flat dictionary of tensors.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pullback.errors import ModelFileError

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def flatten(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a tree into a JSON value and its tensors.

    >>> flatten({"a": [1, torch.zeros(2)]})[0]
    {'dict': [['a', [1, {'tensor': '0'}]]]}
    """
    tensors: dict[str, Tensor] = {}

    def go(node: Any) -> Any:
        if isinstance(node, Tensor):
            key = str(len(tensors))
            tensors[key] = node.detach().cpu().contiguous()
            return {"tensor": key}
        if isinstance(node, dict):
            return {"dict": [[key, go(value)] for key, value in node.items()]}
        if isinstance(node, tuple):
            return {"tuple": [go(value) for value in node]}
        if isinstance(node, list):
            return [go(value) for value in node]
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise TypeError(f"cannot be stored: {type(node).__name__}")

    return go(tree), tensors


def unflatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `flatten`."""
    if isinstance(value, list):
        return [unflatten(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unflatten(item, tensors) for item in content)
    return {key: unflatten(item, tensors) for key, item in content}


def write_folder(folder: str | os.PathLike[str], config: dict[str, Any], tree: Any) -> Path:
    """Write config and tensors into a folder, whole or not at all.

    Both files go to a new folder beside the target, which is then moved into its place.
    """
    target = Path(folder)
    structure, tensors = flatten(tree)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        text = json.dumps({**config, "state": structure}, indent=1, default=_plain)
        (new / CONFIG).write_text(text, encoding="utf-8")
        # Clones: safetensors refuses tensors that share memory, as Adam's may.
        save_file({key: t.clone() for key, t in tensors.items()}, new / WEIGHTS)
        _swap(new, target, config["kind"])
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target


def read_folder(folder: str | os.PathLike[str], *, kind: str, version: int) -> tuple[Any, Any]:
    """Config and tree of a folder written by `write_folder`; nothing in it is executed.

    Raises:
        ModelFileError: there is no such folder, it holds something else, a file is missing,
            truncated or corrupt, or it was written by a newer version.
    """
    source = Path(folder)
    config = _read_config(source, kind)
    if config.get("kind") != kind:
        raise ModelFileError(f"{source}: expected a {kind}, found {config.get('kind', 'none')!r}")
    if not isinstance(config.get("format"), int):
        raise ModelFileError(f"{source}: {CONFIG} is corrupt: it names no format")
    if config["format"] > version:
        raise ModelFileError(
            f"{source}: written in format {config['format']} by pullback "
            f"{config.get('pullback')}; this version reads up to {version}. Update pullback."
        )
    try:
        tensors = load_file(source / WEIGHTS)
        return config, unflatten(config.pop("state"), tensors)
    except FileNotFoundError:
        raise ModelFileError(f"{source}: {WEIGHTS} is missing") from None
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ModelFileError(f"{source}: {WEIGHTS} is truncated or corrupt ({error})") from None


def _read_config(source: Path, kind: str) -> dict[str, Any]:
    try:
        config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFileError(
            f"{source}: expected a folder with {CONFIG} and {WEIGHTS} (a saved {kind})"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{source}: {CONFIG} is truncated or corrupt ({error})") from None
    if not isinstance(config, dict):
        raise ModelFileError(f"{source}: {CONFIG} is not a JSON object")
    return config


def _plain(number: Any) -> Any:
    """Numpy's numbers and arrays, which hyper-parameters may be, as JSON knows them."""
    if hasattr(number, "tolist"):
        return number.tolist()
    raise TypeError(f"cannot be stored: {type(number).__name__}")


def _swap(new: Path, target: Path, kind: str) -> None:
    """Move `new` to `target`, replacing what a former call wrote there, and nothing else."""
    if target.exists():
        _check_replaceable(target, kind)
    os.chmod(new, 0o755)
    if not target.exists():
        new.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    target.rename(old / target.name)
    try:
        new.rename(target)
    except BaseException:
        (old / target.name).rename(target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(target: Path, kind: str) -> None:
    if not target.is_dir():
        raise ModelFileError(f"{target}: exists and is not a folder; nothing was written")
    names = {path.name for path in target.iterdir()}
    if names and names != {CONFIG, WEIGHTS}:
        other = min(names - {CONFIG, WEIGHTS}, default="one file of two")
        raise ModelFileError(
            f"{target}: exists and is not a saved {kind} alone (it holds {other}); nothing was "
            "written"
        )
    if names and _read_config(target, kind).get("kind") != kind:
        raise ModelFileError(f"{target}: exists and is not a saved {kind}; nothing was written")


def clone_state(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of every weight and buffer."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
