"""Weighted means and spreads of labels, unknown entries left out, and the coordinates they give."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.learning.arrays import Labels

Array = NDArray[Any]

# A spread below this share of the size of the numbers is rounding, not variation.
ROUNDING = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-6}


@dataclass(frozen=True, eq=False)
class Moments:
    """Standardised coordinates u = (x - m_x) / s_x and ŷ = (y - m_y) / s_y, in float64.

    A constant input keeps its own column: s_x is then the step that moves an output by one s_y,
    by its derivative labels, or 1 without them.

    Attributes:
        weight: of the rows, [N].
        x_mean: m_x, [D].
        x_scale: s_x, [D], positive.
        y_mean: m_y, [K].
        y_scale: s_y, [K], positive.
    """

    weight: Array
    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array

    @classmethod
    def of(cls, labels: Labels) -> "Moments":
        """Moments of the known labels; each is the same for weight 2 and for a row given twice."""
        weight = np.ones(len(labels.x)) if labels.sample_weight is None else labels.sample_weight
        weight = weight.astype(np.float64)
        rounding = ROUNDING[labels.dtype]
        x = labels.x.astype(np.float64)
        x_mean, spread = _mean_and_spread(x, weight, rounding)
        y_mean, y_scale = _mean_and_spread(labels.y.astype(np.float64), weight, rounding)
        constant = np.ones_like(spread)
        if labels.dydx is not None:
            # No spread of values to go by: the change across the inputs' spread, by derivatives.
            change = np.sqrt(np.mean(rms(labels.dydx * spread, weight) ** 2, axis=1))
            y_scale = np.where(y_scale > 0, y_scale, change)
            y_scale = np.where(y_scale > 0, y_scale, 1.0)
            slope = rms(labels.dydx / y_scale[:, None], weight).max(0)
            constant = 1.0 / np.where(slope > 0, slope, 1.0)
        return cls(
            weight,
            x_mean,
            np.where(spread > 0, spread, constant),
            y_mean,
            np.where(y_scale > 0, y_scale, 1.0),
        )

    def standardise(self, x: Array) -> Array:
        """Inputs u [N, D]."""
        return (x - self.x_mean) / self.x_scale

    def scale_y(self, y: Array) -> Array:
        """Values ŷ [N, K]."""
        return (y - self.y_mean) / self.y_scale

    def unscale_y(self, y: Array) -> Array:
        """Values y [N, K] in the user's units."""
        return y * self.y_scale + self.y_mean

    def scale_dydx(self, dydx: Array) -> Array:
        """∂ŷ/∂u [N, K, D], by the chain rule."""
        return dydx * (self.x_scale / self.y_scale[:, None])

    def unscale_dydx(self, dydx: Array) -> Array:
        """∂y/∂x [N, K, D] in the user's units."""
        return dydx * (self.y_scale[:, None] / self.x_scale)


def rms(values: Array, weight: Array) -> Array:
    """Weighted root mean square over rows of what is known; 0 where nothing is.

    >>> rms(np.array([[3.0, np.nan], [4.0, np.nan]]), np.array([1.0, 0.0])).tolist()
    [3.0, 0.0]
    """
    known = ~np.isnan(values)
    mass = np.where(known, weight.reshape(-1, *[1] * (values.ndim - 1)), 0.0)
    square = np.where(known, values, 0.0).astype(np.float64) ** 2
    total = mass.sum(0)
    return np.sqrt((mass * square).sum(0) / np.where(total > 0, total, 1.0))


def _mean_and_spread(values: Array, weight: Array, rounding: float) -> tuple[Array, Array]:
    """Mean and standard deviation of each column, [C]; a spread that is rounding is 0."""
    known = ~np.isnan(values)
    mass = np.where(known, weight[:, None], 0.0)
    total = mass.sum(0)
    filled = np.where(known, values, 0.0)
    mean = (mass * filled).sum(0) / np.where(total > 0, total, 1.0)
    spread = rms(values - mean, weight)
    size = np.abs(filled * (mass > 0)).max(0)
    return mean, np.where(spread > rounding * size, spread, 0.0)
