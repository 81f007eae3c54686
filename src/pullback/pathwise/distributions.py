"""Where states are drawn from: each distribution maps uniforms to states.

Being functions of uniforms, they serve pseudo-random and Sobol points alike. Choose them wider than
the dynamics: a surrogate is asked about stressed states too, and a plain simulation leaves few
samples in the wings (Huge & Savine widen the volatility to the state by a factor of 1.5).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pullback.errors import InputError, ShapeError


class Distribution(ABC):
    """The law of one named state.

    Attributes:
        size: None for a state [N], n for a vector of states [N, n].
    """

    size: int | None

    @abstractmethod
    def quantile(self, u: Tensor) -> Tensor:
        """States of uniforms in (0, 1): [N, width] to [N, width]."""

    @property
    def width(self) -> int:
        """How many uniforms a state takes."""
        return 1 if self.size is None else self.size

    def shaped(self, u: Tensor) -> Tensor:
        """States [N], or [N, n] for a vector."""
        states = self.quantile(u)
        return states[:, 0] if self.size is None else states


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform on [low, high].

    >>> Uniform(0.1, 0.3).shaped(torch.tensor([[0.0], [0.5]]))
    tensor([0.1000, 0.2000])
    """

    low: float
    high: float
    size: int | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"Uniform: expected low < high, got {self.low} and {self.high}")

    def quantile(self, u: Tensor) -> Tensor:
        """See `Distribution.quantile`."""
        return self.low + (self.high - self.low) * u


@dataclass(frozen=True)
class Normal(Distribution):
    """Normal with this mean and standard deviation."""

    mean: float
    deviation: float
    size: int | None = None

    def quantile(self, u: Tensor) -> Tensor:
        """See `Distribution.quantile`."""
        return self.mean + self.deviation * torch.special.ndtri(u)


@dataclass(frozen=True)
class LogNormal(Distribution):
    """median · exp(deviation · Z), Z standard normal."""

    median: float
    deviation: float
    size: int | None = None

    def quantile(self, u: Tensor) -> Tensor:
        """See `Distribution.quantile`."""
        return self.median * torch.exp(self.deviation * torch.special.ndtri(u))


@dataclass(frozen=True, eq=False)
class NormalVector(Distribution):
    """n correlated normals, or lognormals: mean + L Z or mean · exp(L Z), L Lᵀ = covariance.

    Attributes:
        mean: [n]; of a lognormal, the median.
        covariance: [n, n]; of a lognormal, that of the logarithms.
        log: whether the vector is lognormal.
    """

    mean: Sequence[float] | Tensor
    covariance: Tensor
    log: bool = False

    def __post_init__(self) -> None:
        n = len(self.mean)
        if tuple(self.covariance.shape) != (n, n):
            raise ShapeError(
                f"NormalVector: expected a covariance of shape {(n, n)} for a mean of {n}, got "
                f"{tuple(self.covariance.shape)}"
            )

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of states."""
        return len(self.mean)

    @cached_property
    def _factor(self) -> Tensor:
        return torch.linalg.cholesky(self.covariance.double())

    def quantile(self, u: Tensor) -> Tensor:
        """See `Distribution.quantile`."""
        step = torch.special.ndtri(u) @ self._factor.to(u).T
        mean = torch.as_tensor(self.mean).to(u)
        return mean * step.exp() if self.log else mean + step
