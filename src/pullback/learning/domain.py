"""Where the training rows lay, and which new rows lie elsewhere."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Directions in which the training rows vary by less than this share of the largest are left out
# of the distance: across them every new row would be infinitely far.
_FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class Domain:
    """The box and the ellipsoid of the training inputs.

    Attributes:
        lower: smallest value of each input, [D].
        upper: largest value of each input, [D].
        centre: mean, [D].
        whitening: maps x - centre to coordinates of unit variance, [D, R] with R ≤ D the rank.
        reach: the largest distance from the centre among the training rows.
    """

    lower: Array
    upper: Array
    centre: Array
    whitening: Array
    reach: float

    @classmethod
    def from_rows(cls, x: Array) -> "Domain":
        """The domain of training rows x [N, D].

        >>> domain = Domain.from_rows(np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
        >>> domain.outside(np.array([[0.5, 0.5], [0.5, 1.1]]))
        array([False,  True])
        """
        centre = x.mean(0)
        spread = x.std(0)
        unit = np.where(spread > 0, spread, 1.0)
        scaled = (x - centre) / unit
        variances, axes = np.linalg.eigh(scaled.T @ scaled / len(x))
        kept = variances > _FLAT * max(variances[-1], np.finfo(float).tiny)
        whitening = axes[:, kept] / np.sqrt(variances[kept]) / unit[:, None]
        reach = float(np.linalg.norm((x - centre) @ whitening, axis=1).max())
        return cls(x.min(0), x.max(0), centre, whitening, reach)

    def distance(self, x: Array) -> Array:
        """Mahalanobis distance from the centre, in standard deviations, [N]."""
        return np.linalg.norm((np.asarray(x, float) - self.centre) @ self.whitening, axis=1)

    def outside(self, x: Array) -> NDArray[np.bool_]:
        """Rows beyond the box, or farther from the centre than any training row, [N]."""
        x = np.asarray(x, float)
        beyond = ((x < self.lower) | (x > self.upper)).any(1)
        # A rounding's worth of slack: the farthest training row itself is inside.
        return beyond | (self.distance(x) > self.reach * (1.0 + 1e-9))
