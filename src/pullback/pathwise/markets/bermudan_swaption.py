"""A Bermudan payer swaption in the one-factor Hull–White model, in LGM form, on a flat curve f.

With H(t) = (1 - e^{-at})/a and ζ(t) = σ² (e^{2at} - 1)/(2a) the state x is a Brownian motion with
variance ζ(t) under the numeraire N(t, x) = exp(H x + H² ζ/2)/P(0, t), and a deflated bond is

    P(t, T; x)/N(t, x) = P(0, T) exp(-H(T) x - H(T)² ζ(t)/2)

(Hagan, Evaluating and hedging exotic swap instruments via LGM, 2002). Exercise at year e enters the
swap that pays 1 - P(e, n) - K Σ_{i>e} P(e, i).

Labels: exercise by least-squares Monte Carlo, held fixed in the derivative. Value: backward
quadrature split at the exercise boundary; see `early_exercise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import Normal
from pullback.pathwise.draws import PseudoRandom
from pullback.pathwise.markets.early_exercise import Policy, fit_policy, hold_value
from pullback.pathwise.markets.market import Market, Parameter

_X = Normal(0.0, 0.0154)  # 1.5 times the deviation after one year


@dataclass(frozen=True)
class BermudanSwaption(Market):
    """The right to enter a payer swap in one of several years.

    Its input is the state x at year `start`, and its value the money then if it is not exercised at
    that date. Seen from today (start 0) x is 0, and the model's parameters may be inputs: the
    policy stays that of the fixed ones.

    Attributes:
        start: the year of the state; 0 is today.
        exercise: years of exercise; those after `start` count.
        years: n, of the last payment.
        policy_rows: paths that the policy is regressed on.
        policy_seed: of those paths.
    """

    x: Parameter = _X
    strike: Parameter = 0.03
    curve: Parameter = 0.03
    reversion: Parameter = 0.05
    vol: Parameter = 0.01
    start: int = 1
    exercise: tuple[int, ...] = tuple(range(1, 10))
    years: int = 10
    policy_rows: int = 65_536
    policy_seed: int = 20_260
    parameters = ("x", "strike", "curve", "reversion", "vol")

    @property
    def dates(self) -> tuple[int, ...]:
        """Years of exercise after the state's."""
        return tuple(year for year in self.exercise if year > self.start)

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (len(self.dates),)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        return self._numeraire(p) * self.policy.cash(*self._paths(p, noise))

    @cached_property
    def policy(self) -> Policy:
        """Of the fixed parameters, from states at `start` wider than the model's."""
        nominal = replace(
            self, strike=_nominal(self.strike), curve=_nominal(self.curve),
            reversion=_nominal(self.reversion), vol=_nominal(self.vol),
        )  # fmt: skip
        draws = PseudoRandom(self.policy_seed, 1, self.noise, 1)
        normals = torch.special.ndtri(draws.uniforms(0, self.policy_rows)[:, 0])
        p = nominal.at({"x": normals})
        p.x = normals * 1.5 * _variance(p, max(self.start, 1)).sqrt()
        paths = nominal._paths(p, draws.normals(0, self.policy_rows)[:, 0])
        variance = torch.stack(nominal._deviations(p)).square().cumsum(0)
        return fit_policy(*paths, torch.zeros_like(variance), variance)

    def _paths(self, p: SimpleNamespace, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Deflated exercise values and states, [N, dates]."""
        steps = [d * z for d, z in zip(self._deviations(p), noise.unbind(1), strict=True)]
        states = (p.x + torch.stack(steps, 1).cumsum(1).T).T
        values = [
            self._swap(p, year, x) for year, x in zip(self.dates, states.unbind(1), strict=True)
        ]
        return torch.stack(values, 1), states

    def _deviations(self, p: SimpleNamespace) -> list[Tensor]:
        variances = [_variance(p, year) for year in (self.start, *self.dates)]
        return [(b - a).sqrt() for a, b in pairwise(variances)]

    def _swap(self, p: SimpleNamespace, year: int, x: Tensor) -> Tensor:
        """Deflated value of the swap entered in a year."""
        variance = _variance(p, year)

        def bond(maturity: int) -> Tensor:
            h = _h(p, maturity)
            return torch.exp(-p.curve * maturity - h * x - 0.5 * h.square() * variance)

        fixed = sum(bond(i) for i in range(year + 1, self.years + 1))
        return bond(year) - bond(self.years) - p.strike * fixed

    def _numeraire(self, p: SimpleNamespace) -> Tensor:
        h = _h(p, self.start)
        return torch.exp(
            h * p.x + 0.5 * h.square() * _variance(p, self.start) + p.curve * self.start
        )

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`; parameters but x that differ by row are taken row by row."""
        rows = max(v.numel() for v in vars(p).values())
        if any(v.dim() for name, v in vars(p).items() if name != "x") and rows > 1:
            parts = [
                SimpleNamespace(**{name: v.expand(rows)[i] for name, v in vars(p).items()})
                for i in range(rows)
            ]
            return torch.stack([self.value(part) for part in parts])
        q = SimpleNamespace(**{n: v.reshape(()) if n != "x" else v for n, v in vars(p).items()})
        deviations = self._deviations(q)
        hold = hold_value(
            q.x.reshape(-1),
            lambda date, x: self._swap(q, self.dates[date], x),
            [torch.zeros_like(d) for d in deviations],
            deviations,
            exercise_above=True,
        )
        return (self._numeraire(q) * hold).reshape(q.x.shape)


def _h(p: SimpleNamespace, year: int) -> Tensor:
    return -torch.expm1(-p.reversion * year) / p.reversion


def _variance(p: SimpleNamespace, year: int) -> Tensor:
    return p.vol.square() * torch.expm1(2.0 * p.reversion * year) / (2.0 * p.reversion)


def _nominal(parameter: Parameter) -> Parameter:
    """A number in place of a distribution: its median."""
    if isinstance(parameter, float | int | tuple):
        return parameter
    return float(parameter.shaped(torch.full((1, 1), 0.5, dtype=torch.float64)))
