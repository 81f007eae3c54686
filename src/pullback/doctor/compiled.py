"""Compiled code runs without the operation watch: the compiler would trace into it."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pullback.doctor._torch import compiled_module_class, without_modes
from pullback.doctor.operations import OperationWatch


def patch_compile() -> Callable[[], None]:
    """Shield what torch.compile makes, and what it has made; returns the undoing."""
    compile_ = torch.compile
    undo: list[Callable[[], None]] = []

    def shield_modules() -> None:
        kind = compiled_module_class()
        if kind is not None and not undo:
            undo.append(_shield_class(kind))

    @functools.wraps(compile_)
    def watched_compile(model: Any = None, **options: Any) -> Any:
        result = compile_(model, **options)
        shield_modules()
        if model is None:
            return lambda later: _shielded(result(later))
        return _shielded(result)

    def restore() -> None:
        if torch.compile is watched_compile:
            torch.compile = compile_
        while undo:
            undo.pop()()

    torch.compile = watched_compile
    shield_modules()
    return restore


def _shield_class(kind: Any) -> Callable[[], None]:
    own = kind.__dict__.get("__call__")
    kind.__call__ = _shielded_function(kind.__call__)

    def restore() -> None:
        if own is None:
            del kind.__call__
        else:
            kind.__call__ = own

    return restore


def _shielded(result: Any) -> Any:
    return result if isinstance(result, nn.Module) else _shielded_function(result)


def _shielded_function(function: Any) -> Any:
    @functools.wraps(function)
    def shielded(*args: Any, **kwargs: Any) -> Any:
        with without_modes(OperationWatch):
            return function(*args, **kwargs)

    return shielded
