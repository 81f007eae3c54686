"""How many batches keep their graph: a budget in bytes, spent from the first batch on."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback._torch import saved_bytes
from pullback.errors import InputError
from pullback.inference.recording import Graph

# Of the memory that is free when the run begins; the rest is left to the caller's own logic.
_SHARE = 0.25


class KeepBudget:
    """Decides batch by batch, by the bytes that the first batch's graph holds.

    Attributes:
        bytes: what kept graphs may hold together.
        spent: what they hold, as estimated.
        row_bytes: what a row of the first batch holds; None while nothing was measured.
        reason: where the budget comes from.
    """

    def __init__(self, keep: str | int, device: torch.device) -> None:
        self.spent = 0
        self.row_bytes: int | None = None
        self._ratio: float | None = None
        if keep == "none":
            self.bytes, self.reason = 0, "keep='none': graphs are recomputed"
        elif keep == "auto":
            self.bytes = int(_SHARE * free_memory(device))
            self.reason = f"keep='auto': a quarter of the free memory of {device}"
        elif isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0:
            self.bytes, self.reason = keep, "keep=bytes: as asked for"
        else:
            raise InputError(
                f"infer: expected keep to be 'none', 'auto' or a number of bytes, got {keep!r}"
            )

    def admits(self, values: Sequence[Tensor]) -> bool:
        """This batch may keep its graph; the first is always built, to be measured."""
        if self._ratio is None:
            return self.bytes > 0
        return self.spent + self._ratio * _size(values) <= self.bytes

    def enter(self, values: Sequence[Tensor], graph: Graph) -> bool:
        """Account for a graph; False if it has to be dropped after all."""
        # Activations grow with the inputs, so that rows of another shape are estimated too.
        if self._ratio is None:
            held = saved_bytes(graph.outputs) + _size(graph.inputs)
            self.row_bytes = held // len(values[0])
            self._ratio = held / max(_size(values), 1)
        cost = self._ratio * _size(values)
        if self.spent + cost > self.bytes:
            return False
        self.spent += int(cost)
        return True


def free_memory(device: torch.device) -> int:
    """Bytes that can be allocated on the device without swapping; 0 if nobody says."""
    if device.type == "cpu":
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return 0
    module = torch.get_device_module(device)
    return int(module.mem_get_info(device)[0]) if hasattr(module, "mem_get_info") else 0


def _size(values: Sequence[Tensor]) -> int:
    return sum(value.nbytes for value in values)
