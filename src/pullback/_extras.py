"""Optional dependencies: imported where they are used, named when they are missing."""

import importlib
from types import ModuleType

from pullback.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra brings it.

    Raises:
        MissingExtraError: `module` is not installed.

    >>> require("math", extra="plot", purpose="drawing").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'pullback[{extra}]'"
        ) from error
