"""What the network was when it ran: its weights by digest, its modes, its buffers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pullback._state import kept_buffers
from pullback.inference.fingerprint import combined, digest


def module_of(model: Callable[..., Any]) -> nn.Module | None:
    """The module that a callable runs: itself, the owner of a bound method, what partial wraps."""
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, partial):
        return module_of(model.func)
    owner = getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def batch_coupled(module: nn.Module | None) -> list[str]:
    """Names of the normalisation layers that take their statistics from the batch."""
    if module is None:
        return []
    return [
        f"{name} ({type(part).__name__})" if name else type(part).__name__
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm) and _uses_batch_statistics(part)
    ]


def _uses_batch_statistics(part: _BatchNorm) -> bool:
    return part.training or part.running_mean is None


def without_reduction(model: Callable[..., Any]) -> AbstractContextManager[object]:
    """Run a data-parallel model without preparing, or waiting for, a reduction of gradients."""
    no_sync = getattr(model, "no_sync", None)
    return nullcontext() if no_sync is None else no_sync()


class ModelRecord:
    """The state that outputs depend on, as it stood after the first pass.

    Attributes:
        moved: buffers that running the network changes: running statistics, counters, or state
            carried from one batch to the next.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self.module = module_of(model)
        self._modes = (
            [] if self.module is None else [(m, m.training) for m in self.module.modules()]
        )
        self._counters: dict[str, tuple[int, int, int]] = {}
        self.digests: dict[str, str] = {}
        self.moved: list[str] = []
        self._before = self._count(self._buffers())

    def settle(self) -> None:
        """Take the digests, once the first pass is over."""
        after = self._count(self._buffers())
        self.moved = [name for name, count in after.items() if count != self._before.get(name)]
        watched = self._watched()
        self._counters = self._count(watched)
        self.digests = {name: digest(tensor) for name, tensor in watched.items()}

    def touched(self) -> list[str]:
        """Weights that changed, looking only at those whose version counter moved: cheap."""
        watched = self._watched()
        counters = self._count(watched)
        suspects = [
            name
            for name in {**counters, **self._counters}
            if counters.get(name) != self._counters.get(name)
        ]
        changed = self._differing(watched, suspects)
        if not changed:  # written to, and then given their values back
            self._counters = counters
        return changed

    def changed(self) -> list[str]:
        """Weights that changed, by their bits: also through .data, which counts no version."""
        return self._differing(self._watched(), list(self.digests))

    @property
    def carried(self) -> list[str]:
        """Moved buffers that the network may read, so that one batch can depend on another."""
        return [name for name in self.moved if name in self._watched()]

    @property
    def digest(self) -> str:
        """One digest of all weights."""
        return combined(*(f"{name} {value}" for name, value in sorted(self.digests.items())))

    @property
    def modes(self) -> dict[str, bool]:
        """Train (True) or eval mode of each submodule, by name."""
        if self.module is None:
            return {}
        recorded = {id(part): training for part, training in self._modes}
        return {name: recorded.get(id(part), part.training) for name, part in _named(self.module)}

    def set_modes(self, modes: dict[str, bool]) -> None:
        """Take the modes of a saved run for those of the first pass."""
        if self.module is not None:
            parts = _named(self.module)
            self._modes = [(part, modes.get(name, part.training)) for name, part in parts]

    @contextmanager
    def as_recorded(self) -> Iterator[None]:
        """Run in the recorded modes; they are given back as they are now."""
        now = [(part, part.training) for part, _ in self._modes]
        try:
            for part, training in self._modes:
                part.training = training
            yield
        finally:
            for part, training in now:
                part.training = training

    @contextmanager
    def once_more(self) -> Iterator[None]:
        """Run a batch again, without moving buffers a second time."""
        if self.module is None or not self.moved:
            yield
            return
        with kept_buffers(self.module):
            yield

    def _differing(self, watched: dict[str, Tensor], names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if name not in watched or digest(watched[name]) != self.digests.get(name)
        ]

    def _buffers(self) -> dict[str, Tensor]:
        return {} if self.module is None else dict(self.module.named_buffers())

    def _watched(self) -> dict[str, Tensor]:
        """Parameters and floating buffers; not counters, nor statistics that are not read."""
        if self.module is None:
            return {}
        unread = {
            id(buffer)
            for part, training in self._modes
            if isinstance(part, _BatchNorm) and training
            for buffer in part.buffers()
        }
        buffers = {
            name: buffer
            for name, buffer in self._buffers().items()
            if buffer.is_floating_point() and id(buffer) not in unread
        }
        return {**dict(self.module.named_parameters()), **buffers}

    @staticmethod
    def _count(tensors: dict[str, Tensor]) -> dict[str, tuple[int, int, int]]:
        return {
            name: (id(t), t.data_ptr(), 0 if t.is_inference() else t._version)
            for name, t in tensors.items()
        }


def _named(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(module.named_modules())


def lowest_precision(module: nn.Module | None, *others: torch.dtype) -> torch.dtype:
    """The coarsest floating dtype among the weights and others."""
    dtypes = [dtype for dtype in others if dtype.is_floating_point]
    if module is not None:
        dtypes += [p.dtype for p in module.parameters() if p.dtype.is_floating_point]
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
