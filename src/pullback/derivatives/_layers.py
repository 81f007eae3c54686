"""What modules do while a function runs: their buffers, and the outputs of each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from pullback._state import kept_buffers


@contextmanager
def kept_buffers_of_called(f: Callable[..., Any]) -> Iterator[None]:
    """Give buffers back, also those of modules that a plain function calls."""
    if isinstance(f, nn.Module):
        with kept_buffers(f):
            yield
        return
    seen: set[nn.Module] = set()
    with ExitStack() as stack:

        def keep(module: nn.Module, _: object) -> None:
            if module not in seen:
                seen.update(module.modules())
                stack.enter_context(kept_buffers(module))

        with register_module_forward_pre_hook(keep):
            yield


def outputs_of_layers(run: Callable[[], object], rows: int) -> list[tuple[nn.Module, Tensor]]:
    """Run, and record each module's output that has this many rows, inner modules first."""
    outputs: list[tuple[nn.Module, Tensor]] = []

    def record(layer: nn.Module, _: object, y: object) -> None:
        if isinstance(y, Tensor) and y.dim() > 0 and len(y) == rows:
            outputs.append((layer, y.detach().clone()))

    with register_module_forward_hook(record):
        run()
    return outputs


def name_of_layer(f: Callable[..., Any], layer: nn.Module) -> str:
    """A layer's type, and its path where f is a module."""
    named = f.named_modules() if isinstance(f, nn.Module) else ()
    path = next((name for name, module in named if module is layer), "")
    return f"{type(layer).__name__} '{path}'" if path else type(layer).__name__
