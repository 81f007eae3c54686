"""A call on a basket of correlated Bachelier assets: pathwise labels with a closed form.

    dS_i = vol_i dW_i,   payoff (a·S(T2) - K)+,   state S(T1),   zero rate.

The basket a·S is normal, so price, deltas and gamma at T1 are those of Bachelier's formula with
volatility sqrt(vᵀ C v), v_i = a_i vol_i. `BachelierBasket` and `reference_problem` are the
reference notebooks' own setting and random stream (Huge & Savine,
differential-machine-learning/notebooks, 2020): the same seed gives the same numbers, so that
published figures can be compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.special import ndtr

from pullback.derivatives import value_and_gradient
from pullback.pathwise.distributions import NormalVector
from pullback.pathwise.markets.formulas import density
from pullback.pathwise.markets.market import Market, Parameter

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BasketCall(Market):
    """A call on a basket of n assets that are normal.

    Attributes:
        weights: a, [n].
        covariance: of the assets over one year, [n, n].

    >>> BasketCall.random(3).sample(1024).columns.inputs
    ('spot1', 'spot2', 'spot3')
    """

    weights: tuple[float, ...]
    covariance: Tensor = field(repr=False)
    spot: Parameter
    strike: Parameter = 1.10
    maturity: Parameter = 1.0
    parameters = ("spot", "strike", "maturity")

    @classmethod
    def random(cls, dim: int = 7, market_seed: int = 1234) -> "BasketCall":
        """The market that the reference notebooks draw with this seed."""
        return cls.of(BachelierBasket.random(dim, np.random.RandomState(market_seed)))

    @classmethod
    def of(cls, basket: "BachelierBasket") -> "BasketCall":
        """The market of the reference notebooks, spots widened by the basket's `spread`."""
        covariance = torch.from_numpy(basket.covariance)
        wide = covariance * basket.spread**2 * basket.horizon
        return cls(
            tuple(basket.weights.tolist()), covariance, NormalVector((1.0,) * basket.dim, wide),
            basket.strike, basket.maturity,
        )  # fmt: skip

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (len(self.weights),)

    @cached_property
    def _factor(self) -> Tensor:
        return torch.linalg.cholesky(self.covariance)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        weights = noise.new_tensor(self.weights)
        # The basket's own shock, so that the n × n factor meets the weights and not every path.
        shock = noise @ (weights @ self._factor.to(noise))
        return torch.relu(p.spot @ weights + p.maturity.sqrt() * shock - p.strike)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        weights = p.spot.new_tensor(self.weights)
        variance = weights @ self.covariance.to(p.spot) @ weights
        return bachelier(p.spot @ weights, p.strike, (variance * p.maturity).sqrt())


def bachelier(level: Tensor, strike: Tensor | float, deviation: Tensor | float) -> Tensor:
    """Value of a call on a normal: s (d N(d) + n(d)), d = (level - K)/s with s the deviation."""
    d = (level - strike) / deviation
    return deviation * (d * ndtr(d) + density(d))


@dataclass(frozen=True)
class Sample:
    """States with labels: x [N, D], y [N], dydx [N, D]."""

    x: Array
    y: Array
    dydx: Array


@dataclass(frozen=True, eq=False)
class BachelierBasket:
    """The reference notebooks' basket of D assets; build one with `BachelierBasket.random`.

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
        level = torch.from_numpy(x @ self.weights)
        deviation = self.volatility * sqrt(self.maturity)
        price, slope = value_and_gradient(
            lambda m: bachelier(m, self.strike, deviation), level, check_rows=False
        )
        assert isinstance(slope, Tensor)
        return Sample(x, price.numpy(), np.outer(slope.numpy(), self.weights))


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
