"""Names whose modules are imported at first use, so that `import pullback` stays light."""

import importlib
from collections.abc import Callable
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
