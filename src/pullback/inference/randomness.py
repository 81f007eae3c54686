"""The random streams that a network may draw from: noticed when used, replayed on recomputing."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RandomState:
    """Where torch's streams (CPU and devices), numpy's and Python's stood at one moment.

    Generators that a network holds itself (`np.random.default_rng`, `torch.Generator`) are not
    among them: nothing leads to them. The comparison of recomputed outputs finds their use.
    """

    torch: dict[str, Tensor]
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]

    def same_as(self, other: "RandomState") -> bool:
        """No stream has moved between the two moments."""
        return (
            all(torch.equal(state, other.torch[name]) for name, state in self.torch.items())
            and self.numpy[2] == other.numpy[2]
            and bool((self.numpy[1] == other.numpy[1]).all())
            and self.python == other.python
        )

    def install(self) -> None:
        """Put every stream where it stood."""
        for name, state in self.torch.items():
            if name == "cpu":
                torch.set_rng_state(state)
            else:
                device = torch.device(name)
                torch.get_device_module(device).set_rng_state(state, *_which(device))
        np.random.set_state(self.numpy)
        random.setstate(self.python)


def random_state(device: torch.device) -> RandomState:
    """Where the streams stand now: the CPU's, and the device's if it is another."""
    streams = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        streams[str(device)] = torch.get_device_module(device).get_rng_state(*_which(device))
    return RandomState(streams, np.random.get_state(legacy=True), random.getstate())  # type: ignore[arg-type]


@contextmanager
def kept_streams(device: torch.device) -> Iterator[None]:
    """Give every stream back as it stood."""
    before = random_state(device)
    try:
        yield
    finally:
        before.install()


def _which(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is only one of these
