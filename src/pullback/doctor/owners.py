"""Which variable, attribute or container holds a tensor: names and numbers out, nothing kept."""

import gc
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from pullback.doctor._torch import sequence_of

LIBRARIES = tuple(
    path + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if path
)
_OPTIMIZED = 0x1  # CO_OPTIMIZED: locals live in slots, not in a dictionary
_EDGE = 32  # items looked at from either end of a long container
_SKIPPED = (str, bytes, int, float, complex, bool, type, ModuleType, type(None), torch.device)


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's locals that leaves nothing behind.

    Up to Python 3.12 `f_locals` of a function is a dictionary that the frame keeps, so every
    tensor in it would live until the function returns; it is emptied again.
    """
    names = frame.f_locals
    copy = dict(names)
    if frame.f_code.co_flags & _OPTIMIZED and sys.version_info < (3, 13):
        names.clear()
    return copy


@dataclass
class Held:
    """Tensors by path, for the length of one call; and what may be kept: lengths and ids."""

    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    buffers: set[str] = field(default_factory=set)

    def paths_of(self, node: Any, number: int) -> list[str]:
        """Paths of tensors that are this output of this node, attributes and items first."""
        paths = [
            path for path, t in self.tensors if t.grad_fn is node and t.output_nr == number
        ] or [path for path, t in self.tensors if t.grad_fn is node]
        return sorted(paths, key=rank)

    def names(self) -> dict[tuple[int, int], tuple[str, ...]]:
        """Paths by sequence and output number, of tensors that carry a graph."""
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for path, tensor in self.tensors:
            if tensor.grad_fn is not None:
                key = (sequence_of(tensor.grad_fn), tensor.output_nr)
                found[key] = (*found.get(key, ()), path)
        return found


def rank(path: str) -> tuple[bool, int]:
    """Attributes and items outlive a pass more often than plain variables do."""
    return ("." not in path and "[" not in path, len(path))


def held(frames: Iterable[FrameType], budget: int = 3000) -> Held:
    """Everything that the frames' variables reach, outermost frame first.

    Args:
        frames: the user's frames.
        budget: objects to look at before giving up.
    """
    found = Held()
    queue: deque[tuple[str, Any, int]] = deque()
    for frame in frames:
        for name, value in locals_of(frame).items():
            if not name.startswith("__"):
                queue.append((name, value, 0))
    seen: dict[int, Any] = {}
    while queue and budget:
        path, value, depth = queue.popleft()
        budget -= 1
        try:
            if isinstance(value, _SKIPPED):
                continue
        except Exception:  # a proxy that answers for an object that is not there
            continue
        if isinstance(value, Tensor):
            # Every name of a tensor counts, so tensors are not dropped when seen before.
            found.tensors.append((path, value))
            if value.grad_fn is None and value.requires_grad:
                found.parameters.setdefault(id(value), path)
        elif id(value) not in seen and depth < 6:
            # Kept until the scan ends: ids of short-lived objects are given out again.
            seen[id(value)] = value
            queue.extend((p, v, depth + 1) for p, v in _parts(path, value, found))
    return found


def _parts(path: str, value: Any, found: Held) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        found.modules[path] = type(value).__name__
        found.buffers.update(f"{path}.{name}" for name in value._buffers)
        yield from _of_module(path, value)
    elif isinstance(value, dict):
        found.lengths[path] = len(value)
        for key, item in _ends(list(value.items())):
            yield f"{path}[{key!r}]" if isinstance(key, str | int) else f"{path}[...]", item
    elif isinstance(value, list | tuple | deque | set):
        if not isinstance(value, deque) or value.maxlen is None:
            found.lengths[path] = len(value)
        for index, item in _ends(list(enumerate(value))):
            yield f"{path}[{index}]", item
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not yet filled
                continue
    elif isinstance(value, MethodType):
        yield path, value.__self__
    elif _is_looked_into(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
        for name, item in list(vars(value).items()):
            yield f"{path}.{name}", item


_LOOKED_INTO: dict[type, bool] = {}


def _is_looked_into(kind: type) -> bool:
    """Whether an object is the user's own or torch's: other libraries' insides name nothing."""
    known = _LOOKED_INTO.get(kind)
    if known is None:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None) or ""
        known = (
            module is not None
            and (kind.__module__.partition(".")[0] == "torch" or not file.startswith(LIBRARIES))
            and kind.__module__ != "builtins"
        )
        _LOOKED_INTO[kind] = known
    return known


def _ends(items: list[Any]) -> list[Any]:
    return items if len(items) <= 2 * _EDGE else items[:_EDGE] + items[-_EDGE:]


def _of_module(path: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        if name in ("_parameters", "_buffers", "_modules"):
            for inner, part in list(value.items()):
                yield f"{path}.{inner}", part
        elif name.endswith("_hooks") and isinstance(value, dict):
            for hook in list(value.values()):
                yield path, hook
        elif not name.startswith("_forward") and not name.startswith("_backward"):
            yield f"{path}.{name}", value


def search_everywhere(node: Any, number: int) -> str | None:
    """The owner of a tensor by asking the garbage collector: slow, for failures only."""
    for tensor in gc.get_objects():
        if type(tensor) is not Tensor or tensor.grad_fn is not node or tensor.output_nr != number:
            continue
        for holder in gc.get_referrers(tensor):
            if isinstance(holder, dict):
                key = next((k for k, v in holder.items() if v is tensor), None)
                owner = _owner_of(holder)
                if key is not None and owner:
                    return f"{owner}.{key}" if isinstance(key, str) else f"{owner}[...]"
    return None


def _owner_of(namespace: dict[Any, Any]) -> str | None:
    for holder in gc.get_referrers(namespace):
        if isinstance(holder, dict) and isinstance(holder.get("__name__"), str):
            name = next((k for k, v in holder.items() if v is namespace), "?")
            return f"{holder['__name__']}.{name}"
        if getattr(holder, "__dict__", None) is namespace:
            return f"<{type(holder).__name__}>"
    return None
