"""What the door needs beyond plain imports: names imported at first use, and callable packages."""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def lazy(package: str, names: dict[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) for names that live in modules not yet imported.

    Args:
        package: the module that offers the names.
        names: module by name.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name]), name)

    return __getattr__


def make_callable(package: str, function: Callable[..., Any]) -> None:
    """Let a package be called as the function that gave it its name.

    A package and a function cannot share a name at the door in any other way, and both are wanted:
    `pb.doctor()` beside `pullback.doctor.rendering`.
    """

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[package].__class__ = CallablePackage
