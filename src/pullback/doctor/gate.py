"""The one place through which every backward goes, shared by all doctors that are at work."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from pullback.doctor import _torch
from pullback.doctor.compiled import patch_compile


class Watcher(Protocol):
    """What the gate tells; none of these may raise."""

    def before(self, outputs: Any, arguments: tuple[Any, ...], accumulate: bool) -> Any:
        """A backward is about to run."""

    def after(self, call: Any, gradients: Any) -> None:
        """It ran."""

    def failed(self, call: Any, error: BaseException) -> None:
        """It raised."""

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer stepped."""

    def switched(self, training: bool) -> None:
        """A module was switched between training and evaluation."""


_watchers: list[Watcher] = []
_lock = threading.Lock()
_undo: list[Callable[[], None]] = []


def open_gate(watcher: Watcher) -> None:
    """Tell `watcher` of every backward; the first one in patches torch."""
    with _lock:
        if not _watchers:
            _patch()
        _watchers.append(watcher)


def close_gate(watcher: Watcher) -> None:
    """Tell it no more; the last one out gives back what was patched."""
    with _lock:
        _watchers[:] = [other for other in _watchers if other is not watcher]
        if not _watchers:
            while _undo:
                _undo.pop()()


def _patch() -> None:
    engine = _torch.current_gate()

    def watched_engine(outputs: Any, *arguments: Any, **options: Any) -> Any:
        watchers = tuple(_watchers)  # they may come and go while the engine runs
        accumulate = bool(options.get("accumulate_grad", False))
        calls = [watcher.before(outputs, arguments, accumulate) for watcher in watchers]
        try:
            gradients = engine(outputs, *arguments, **options)
        except BaseException as error:
            for watcher, call in zip(watchers, calls, strict=True):
                watcher.failed(call, error)
            raise
        for watcher, call in zip(watchers, calls, strict=True):
            watcher.after(call, gradients)
        return gradients

    def restore_engine() -> None:
        # Whoever patched after us keeps their patch; ours then only passes through.
        if _torch.current_gate() is watched_engine:
            _torch.set_gate(engine)

    _torch.set_gate(watched_engine)
    _undo.append(restore_engine)
    _undo.append(register_optimizer_step_post_hook(_stepped).remove)
    _patch_train()
    _undo.append(patch_compile())


def _stepped(optimizer: Optimizer, *_: Any) -> None:
    for watcher in tuple(_watchers):
        watcher.stepped(optimizer)


def _patch_train() -> None:
    train = nn.Module.train

    def watched_train(self: nn.Module, mode: bool = True) -> nn.Module:
        for watcher in tuple(_watchers):
            watcher.switched(bool(mode))
        # The submodules' own train() need not be told again, but they may override it.
        return train(self, mode)

    def restore_train() -> None:
        if nn.Module.train is watched_train:
            setattr(nn.Module, "train", train)  # noqa: B010 - a checker refuses the assignment

    watched_train.__doc__ = train.__doc__
    setattr(nn.Module, "train", watched_train)  # noqa: B010
    _undo.append(restore_train)
