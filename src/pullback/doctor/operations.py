"""Watching operations: which source line makes which nodes, and what leaves the graph."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pullback.doctor import _torch
from pullback.doctor.examination import Examination
from pullback.doctor.lines import MOST, Lines
from pullback.doctor.sites import Site, user_frame

_next = _torch.next_sequence
_DATA = Tensor.data.__get__  # type: ignore[attr-defined]
_READS = {"item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__format__", "__repr__"}
_COMPARISONS = {"gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__", "sign", "heaviside"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__rsub__", "rsub"}
_MOST_WRITES = 10_000
_SUMS |= {"stack", "cat", "sum", "mean"}


def kind_of(function: Any) -> str:
    """What an operation does to the graph, by its name."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return "data" if function == _DATA else ""
    if name in ("detach", "detach_"):
        return name
    if name in _READS:
        return "read"
    if name in _COMPARISONS:
        return "comparison"
    if name in _SUMS:
        return "sum"
    if name.endswith("_") and not name.startswith("_"):
        return "in-place"
    return "in-place" if name in ("__setitem__", "__imul__", "__isub__", "__itruediv__") else ""


class OperationWatch(TorchFunctionMode):
    """Notes the user's line of each operation that makes nodes.

    Args:
        lines: where intervals of sequence numbers go.
        examination: told of every operation while it is active.
        site: makes a site of a frame.
    """

    def __init__(
        self, lines: Lines, examination: Examination, site: Callable[[FrameType | None], Site]
    ) -> None:
        super().__init__()
        self.lines = lines
        self.examination = examination
        self.site = site
        self.broken = ""
        self.writes: dict[int, Site] = {}
        self._last = _torch.next_sequence()
        self._kinds: dict[Any, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and note its line."""
        examined = self.examination.active
        if examined and getattr(func, "__name__", "") == "detach_":
            self.examination.cuts.about_to_detach(args[0])
        result = func(*args, **kwargs) if kwargs else func(*args)
        # Optimizers write without grad mode, and many times; in later passes only steps count.
        if args and result is args[0] and (examined or torch.is_grad_enabled()):
            self._wrote(func, result)
        now = _next()
        if now == self._last and not examined:
            return result
        if not self.broken:
            try:
                self._note(func, args, kwargs, result, now)
            except Exception as error:
                self.broken = f"operation: {type(error).__name__}: {error}"
        return result

    def _wrote(self, func: Any, result: Any) -> None:
        name = getattr(func, "__name__", "")
        in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
        if in_place and isinstance(result, Tensor):
            if len(self.writes) > _MOST_WRITES:
                self.writes.clear()
            self.writes[result.data_ptr()] = self.site(user_frame(sys._getframe(2)))

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any, now: int) -> None:
        frame = user_frame(sys._getframe(2))
        if self.examination.active:
            kind = self._kinds.get(func)
            if kind is None:
                kind = self._kinds[func] = kind_of(func)
            made = now > self._last
            if made or kind or not torch.is_grad_enabled() or self.examination.tainted:
                site = self.site(frame)
                self.examination.operation(kind, args, kwargs, result, site, self._last, now, frame)
                now = _torch.next_sequence()
        if now > self._last:
            self.lines.ends.append(now)
            self.lines.sites.append(self.site(frame))
            if len(self.lines.ends) > MOST:
                self.lines.trim()
            self._last = now
