"""A call on a basket of correlated Bachelier assets: pathwise labels with a closed form.

    dS_i = vol_i dW_i,   payoff (a·S(T2) - K)+,   state S(T1),   zero rate.

The basket a·S is normal, so price, deltas and gamma at T1 are those of Bachelier's formula with
volatility sqrt(vᵀ C v), v_i = a_i vol_i. Setting and random stream are those of the reference
notebooks of Huge & Savine (differential-machine-learning/notebooks, 2020): the same seed gives
the same numbers, so that published figures can be compared with.
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """States with labels: x [N, D], y [N], dydx [N, D]."""

    x: Array
    y: Array
    dydx: Array


@dataclass(frozen=True, eq=False)
class BachelierBasket:
    """A basket of D assets; build one with `BachelierBasket.random`.

    Attributes:
        weights: a, [D], summing to one.
        covariance: of the assets over one year, [D, D].
        strike: K.
        maturity: T2 - T1, from the state to the payment, in years.
        horizon: T1, from today to the state, in years.
        spread: factor on the volatility up to T1, so that states reach into the wings, where a
            plain simulation would leave few samples.
    """

    weights: Array
    covariance: Array
    strike: float = 1.10
    maturity: float = 1.0
    horizon: float = 1.0
    spread: float = 1.5

    @classmethod
    def random(
        cls, dim: int, rng: np.random.RandomState, *, volatility: float = 0.2, spread: float = 1.5
    ) -> "BachelierBasket":
        """Draw correlation, weights and volatilities; the basket's volatility is fixed.

        Draws in the order of the reference notebooks: 2·D·D uniforms for the correlation, D for the
        weights, D for the volatilities.
        """
        factors = rng.uniform(-1.0, 1.0, size=(2 * dim, dim))
        gram = factors.T @ factors
        inverse_scale = np.diag(1.0 / np.sqrt(np.diagonal(gram)))
        correlation = np.linalg.multi_dot([inverse_scale, gram, inverse_scale])
        weights = rng.uniform(1.0, 10.0, size=dim)
        weights /= weights.sum()
        vols = rng.uniform(5.0, 50.0, size=dim)
        weighted = weights * vols
        vols *= volatility / np.sqrt(weighted @ correlation @ weighted)
        return cls(weights, np.diag(vols) @ correlation @ np.diag(vols), spread=spread)

    @property
    def dim(self) -> int:
        """D, the number of assets."""
        return len(self.weights)

    @cached_property
    def volatility(self) -> float:
        """Normal volatility of the basket, a year."""
        return float(np.sqrt(self.weights @ self.covariance @ self.weights))

    def sample(self, rows: int, rng: np.random.RandomState) -> Sample:
        """Simulate states S(T1) with payoffs and pathwise deltas, the mean of two antithetic paths.

        The derivative of the payoff is a·1{basket > K} on each path: exact almost everywhere, and
        unbiased because the payoff is continuous.
        """
        factor = np.linalg.cholesky(self.covariance) * sqrt(self.maturity)
        widened = factor * self.spread * sqrt(self.horizon / self.maturity)
        normals = rng.normal(size=(2, rows, self.dim))
        x = 1.0 + normals[0] @ widened.T
        step = normals[1] @ factor.T
        y = np.zeros(rows)
        dydx = np.zeros((rows, self.dim))
        for sign in (1.0, -1.0):
            basket = (x + sign * step) @ self.weights
            y += 0.5 * np.maximum(0.0, basket - self.strike)
            dydx += 0.5 * np.outer(basket > self.strike, self.weights)
        return Sample(x, y, dydx)

    def grid(self, rows: int, rng: np.random.RandomState, *, width: float = 0.5) -> Array:
        """Uniform test states around 1, a range that widens with the dimension, [rows, D]."""
        half = width * (1.0 + 0.5 * sqrt((self.dim - 1) * 2.0 * width / 12.0))
        return rng.uniform(1.0 - half, 1.0 + half, size=(rows, self.dim))

    def exact(self, x: Array) -> Sample:
        """Price and deltas by Bachelier's formula at states x [N, D]."""
        deviation = self.volatility * sqrt(self.maturity)
        d = (x @ self.weights - self.strike) / deviation
        density = np.exp(-0.5 * d * d) / sqrt(2.0 * np.pi)
        above = torch.special.ndtr(torch.from_numpy(d)).numpy()
        return Sample(x, deviation * (d * above + density), np.outer(above, self.weights))


def reference_problem(
    dim: int, rows: int, *, simulated: int | None = None, seed: int = 1234, test_seed: int = 4321
) -> tuple[Sample, Sample]:
    """The reference notebooks' experiment: noisy training labels and exact test labels.

    Args:
        dim: D, the number of assets.
        rows: how many training rows are kept.
        simulated: how many are simulated before the first `rows` are kept (the draw of the inner
            path depends on it); default `rows`.
        seed: of the market and the training set.
        test_seed: of the 4,096 test states.

    >>> train, test = reference_problem(2, 64)
    >>> train.x.shape, train.dydx.shape, test.y.shape
    ((64, 2), (64, 2), (4096,))
    """
    rng = np.random.RandomState(seed)
    market = BachelierBasket.random(dim, rng)
    full = market.sample(simulated or rows, rng)
    train = Sample(full.x[:rows], full.y[:rows], full.dydx[:rows])
    return train, market.exact(market.grid(4096, np.random.RandomState(test_seed)))
