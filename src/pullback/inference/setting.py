"""Where and how every batch runs, in the first pass and on recomputing alike."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pullback.inference.weights import module_of


@dataclass(frozen=True)
class Setting:
    """The device that batches are moved to, and the autocast dtype there; None runs without."""

    device: torch.device
    autocast: torch.dtype | None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Autocast as recorded, whatever surrounds the call."""
        # The cache of cast weights lives until the outermost autocast ends: one filled without a
        # graph would be read with one, and the weights' gradient lost.
        with torch.autocast(
            self.device.type,
            dtype=self.autocast,
            enabled=self.autocast is not None,
            cache_enabled=False,
        ):
            yield

    def without_autocast(self) -> AbstractContextManager[object]:
        """Autograd's own arithmetic follows the autocast that surrounds it, and must not."""
        return torch.autocast(self.device.type, enabled=False)

    def move(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The values on the device."""
        return [value.to(self.device) for value in values]


def read_setting(
    model: Callable[..., Any],
    device: torch.device | str | None,
    autocast: torch.dtype | bool | None,
) -> Setting:
    """Default device: where the network lies. Default autocast: what surrounds the call."""
    if device is None:
        module = module_of(model)
        tensors = () if module is None else chain(module.parameters(), module.buffers())
        first = next(iter(tensors), None)
        device = torch.device("cpu") if first is None else first.device
    device = torch.device(device)
    if isinstance(autocast, torch.dtype):
        return Setting(device, autocast)
    on = torch.is_autocast_enabled(device.type) if autocast is None else autocast
    return Setting(device, torch.get_autocast_dtype(device.type) if on else None)
