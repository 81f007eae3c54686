"""Are labels noisy? What values and derivatives say of each other between neighbours.

NOTE [Noise or curvature]
Between two rows a distance h apart, y should change by the trapezoid rule, Δy ≈ ½(z_a + z_b)·Δx.
For exact labels what it misses is of third order in h; for noisy ones it is the noise in y,
whatever h, plus h times the noise in z. One distance can't tell a wavy function, known exactly at
a few far points, from noise: so the miss is looked at between nearest neighbours and between
farther ones, and the exponent p of its growth with distance decides. Measured:

    exact labels, from 4 points of x sin x to 42,039 of an airfoil:     p from 1.02 to 2.8
    payoffs on simulated paths, 1 to 20 inputs, 128 rows and more:      p up to 0.67, miss > 0.26
    exact values with noise in z alone, of dense rows:                  p near 1, miss small
"""

from dataclasses import dataclass
from math import inf, log, nan

import torch
from torch import Tensor

# What is missed, as a share of y's spread, or of the derivatives' size times the distance, below
# which labels are as good as exact.
_SMALL, _SMALL_SLOPE = 0.15, 0.35
# Growth with distance below which a miss is noise: of values, if it is large already between
# neighbours; of derivatives, if it is small there because they are near.
_EXPONENT, _SLOPE_EXPONENT = 1.0, 1.4
_FAR = 16
_MOST_ROWS = 1_000


@dataclass(frozen=True)
class Noise:
    """How values and derivatives of neighbours disagree. See NOTE [Noise or curvature].

    Attributes:
        value: root mean square miss between nearest neighbours, a share of y's spread.
        slope: the same divided by the distance, a share of the derivatives' size.
        exponent: p, of the miss's growth with distance; NaN where it can't be told.
    """

    value: float
    slope: float
    exponent: float

    @property
    def known(self) -> bool:
        """Whether there are neighbours with known labels at all."""
        return self.value == self.value

    @property
    def large(self) -> bool:
        """Whether nearest neighbours disagree a lot, be it for noise or for their distance."""
        return self.value > _SMALL

    @property
    def present(self) -> bool:
        """Whether the labels are noisy."""
        if self.large:
            return self.exponent < _EXPONENT
        return self.slope > _SMALL_SLOPE and self.exponent < _SLOPE_EXPONENT


def measure_noise(x: Tensor, y: Tensor, dydx: Tensor) -> Noise:
    """Compare neighbours' values and derivatives; of several outputs the noisiest counts.

    Args:
        x: standardised, [N, D].
        y: standardised, [N, K]; NaN is unknown.
        dydx: standardised, [N, K, D]; NaN is unknown.

    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> measure_noise(x, x.sin(), x.cos()[:, None]).present
    False
    """
    rows = torch.arange(len(x))[:: max(1, len(x) // _MOST_ROWS)]
    if len(x) < 2:
        return Noise(nan, nan, nan)
    apart = torch.cdist(x[rows], x)
    apart[torch.arange(len(rows)), rows] = torch.inf
    distances, others = apart.topk(min(_FAR, len(x) - 1), largest=False)
    near, far = (
        _misses(x, y, dydx, rows, others[:, i], distances[:, i]) for i in (0, others.shape[1] - 1)
    )
    found = [
        Noise(*miss, _exponent(distances, before, after))
        for miss, before, after in zip(near, near, far, strict=True)
        if miss[0] == miss[0]
    ]
    return max(found, key=lambda n: (n.present, n.value), default=Noise(nan, nan, nan))


def _misses(
    x: Tensor, y: Tensor, dydx: Tensor, rows: Tensor, others: Tensor, distance: Tensor
) -> list[tuple[float, float]]:
    """For each output: the miss, and the miss by distance and size of the derivatives."""
    step = (x[others] - x[rows]).unsqueeze(1)
    slope = 0.5 * (dydx[rows] + dydx[others])
    miss = y[others] - y[rows] - (slope * step).sum(2)
    size = dydx.square().nanmean((0, 2)).sqrt()
    # Two rows' noise in Δy, half of it in the mean of two slopes. A row that is given twice, with
    # two values, shows infinite noise in its slope.
    value = _rms(miss) / 2**0.5
    steep = _rms((miss / distance.unsqueeze(1)).nan_to_num(nan=torch.nan, posinf=1e9)) / size
    return list(zip(value.tolist(), (steep * 2**0.5).tolist(), strict=True))


def _rms(miss: Tensor) -> Tensor:
    return miss.square().nanmean(0).sqrt()


def _exponent(distances: Tensor, near: tuple[float, float], far: tuple[float, float]) -> float:
    """The growth of a miss from the nearest to the farther neighbours."""
    before, after = (float(distances[:, i].square().mean().sqrt()) for i in (0, -1))
    if near[0] == 0:
        return inf
    if before == 0:
        return 0.0
    # With two rows, or equal distances, there is nothing to compare: taken for exact.
    return inf if after <= before else log(far[0] / near[0]) / log(after / before)
