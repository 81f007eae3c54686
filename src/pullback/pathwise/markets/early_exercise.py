"""Early exercise: a policy by least-squares Monte Carlo for labels, quadrature for exact values.

NOTE [Exercise held fixed]
A label is the cash flow of its path under a fixed policy, and its derivative is that of this cash
flow: the decision itself is not differentiated. For the best policy that is exact, since moving a
decision between two equal choices changes nothing; the error of a policy enters values in second
order, but derivatives in first. The policy is therefore regressed on many paths, from states
spread wide at all dates, and where exercise pays only.

All amounts are deflated (in units of the numeraire), so that dates compare.

NOTE [Hedged regression]
Near the boundary holding and exercising differ by little, so noise of the regression moves the
boundary far. The state steps by normals; Hermite polynomials of its move up to the exercise are
martingales (and stay so when stopped), hence of mean zero given the state. Regressed on beside the
powers of the state, they take most of the noise away and bias nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pullback.pathwise.markets.formulas import density, gauss_legendre

_DEGREE, _HEDGE_DEGREE = 6, 4
_NEAREST = 0.3  # of the rows where exercise pays: those of the fine fit


@dataclass(frozen=True, eq=False)
class _Fit:
    """A polynomial in the standardised state, for states from low to high."""

    low: float
    high: float
    centre: float
    scale: float
    coefficients: Tensor

    def __call__(self, state: Tensor) -> Tensor:
        return _powers((state - self.centre) / self.scale) @ self.coefficients.to(state)

    def covers(self, state: Tensor) -> Tensor:
        return (state >= self.low) & (state <= self.high)


@dataclass(frozen=True, eq=False)
class Policy:
    """Exercise where it pays more than the regressed continuation.

    Attributes:
        coarse: the continuation on each date but the last, where exercise pays.
        fine: the same, close to the boundary.
    """

    coarse: tuple[_Fit, ...]
    fine: tuple[_Fit, ...]

    def decide(self, date: int, exercise: Tensor, state: Tensor) -> Tensor:
        """Whether to exercise, [N], on a date but the last."""
        coarse, fine = self.coarse[date], self.fine[date]
        with torch.no_grad():
            hold = torch.where(fine.covers(state), fine(state), coarse(state))
            return (exercise > 0) & (exercise > hold)

    def cash(self, exercise: Tensor, state: Tensor) -> Tensor:
        """The deflated cash flow of each path, [N]. See NOTE [Exercise held fixed].

        Args:
            exercise: deflated values of exercising on each date, [N, T].
            state: on each date, [N, T].
        """
        cash = torch.relu(exercise[:, -1])
        for date in reversed(range(exercise.shape[1] - 1)):
            now = exercise[:, date]
            cash = torch.where(self.decide(date, now, state[:, date]), now, cash)
        return cash


@dataclass(frozen=True, eq=False)
class _Stopped:
    """Paths under the policy so far: cash, martingale and its variance where they stop, [N]."""

    cash: Tensor
    martingale: Tensor
    variance: Tensor

    def or_now(self, decided: Tensor, other: "_Stopped") -> "_Stopped":
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return _Stopped(*(torch.where(decided, new, old) for new, old in pairs))


def fit_policy(exercise: Tensor, state: Tensor, drift: Tensor, variance: Tensor) -> Policy:
    """Longstaff and Schwartz, Valuing American options by simulation, 2001; backwards from the end.

    Args:
        exercise: deflated values of exercising on each date, [N, T].
        state: on each date, [N, T].
        drift: of the state up to each date, cumulated, [T].
        variance: of its normal steps up to each date, cumulated, [T].
    """
    martingale = state - drift
    last = exercise.shape[1] - 1
    stopped = _Stopped(
        torch.relu(exercise[:, last]), martingale[:, last], variance[last].expand(len(state))
    )
    policy = Policy((), ())
    for date in reversed(range(last)):
        now = _Stopped(exercise[:, date], martingale[:, date], variance[date].expand(len(state)))
        pays = (now.cash > 0).nonzero()[:, 0]
        coarse = _fit(pays, state[:, date], stopped, now)
        gain = (now.cash[pays] - coarse(state[pays, date])).abs()
        fine = _fit(pays[gain.argsort()[: int(_NEAREST * len(pays))]], state[:, date], stopped, now)
        policy = Policy((coarse, *policy.coarse), (fine, *policy.fine))
        stopped = stopped.or_now(policy.decide(0, now.cash, state[:, date]), now)
    return policy


def _fit(rows: Tensor, state: Tensor, stopped: _Stopped, now: _Stopped) -> _Fit:
    """Of the cash on the state, hedges beside it. See NOTE [Hedged regression]."""
    inside = state[rows]
    centre, scale = float(inside.mean()), float(inside.std())
    powers = _powers((inside - centre) / scale)
    moved, spread = (
        getattr(stopped, name)[rows] - getattr(now, name)[rows]
        for name in ("martingale", "variance")
    )
    both = torch.cat([powers, _hedges(moved, spread, powers)], dim=1)
    solution = torch.linalg.lstsq(both, stopped.cash[rows, None]).solution[: _DEGREE + 1, 0]
    return _Fit(float(inside.min()), float(inside.max()), centre, scale, solution)


def _hedges(moved: Tensor, variance: Tensor, powers: Tensor) -> Tensor:
    """Hermite martingales of the move to the exercise, times powers of the state; mean zero."""
    m, v = moved, variance
    hermites = (m, m**2 - v, m**3 - 3.0 * v * m, m**4 - 6.0 * v * m**2 + 3.0 * v**2)
    columns = [(h / h.std())[:, None] * powers[:, : _HEDGE_DEGREE + 1] for h in hermites]
    return torch.cat(columns, dim=1)


def _powers(z: Tensor) -> Tensor:
    return z[:, None] ** torch.arange(_DEGREE + 1, device=z.device)


def hold_value(
    start: Tensor,
    exercise: Callable[[int, Tensor], Tensor],
    drifts: Sequence[Tensor],
    deviations: Sequence[Tensor],
    *,
    exercise_above: bool,
    nodes: int = 96,
) -> Tensor:
    """The exact deflated value of a right that may be exercised on T later dates, [N].

    The state steps by normals. Backward Gauss–Legendre quadrature, split where exercise begins to
    pay more than holding. Drifts and deviations may carry a graph: boundaries and nodes are held
    fixed in the derivative, which is exact at the best boundary.

    Args:
        start: states now, [N].
        exercise: date and states to deflated values.
        drifts: of the steps to each date, T scalars.
        deviations: of these steps.
        exercise_above: whether exercise pays above the boundary, else below.
        nodes: on each side of the boundary.
    """
    total = float(sum(d.detach() ** 2 for d in deviations)) ** 0.5
    moved = float(sum(d.detach() for d in drifts))
    first, last = (float(end) for end in start.detach().aminmax())
    low = first + min(moved, 0.0) - 8.0 * total
    high = last + max(moved, 0.0) + 8.0 * total

    hold: Callable[[Tensor], Tensor] = torch.zeros_like
    for date in reversed(range(len(drifts))):
        pay = partial(exercise, date)
        boundary = _boundary(pay, hold, low, high, exercise_above, start)
        points, weights = gauss_legendre(start.new_tensor([low, boundary, high]), nodes)
        exercised = (points > boundary) == exercise_above
        best = torch.where(exercised, pay(points), hold(points))
        hold = partial(_mean, points, best * weights, drifts[date], deviations[date])
    return hold(start)


def _mean(points: Tensor, amounts: Tensor, drift: Tensor, deviation: Tensor, x: Tensor) -> Tensor:
    """E[amount] after a normal step from x, by quadrature."""
    z = (points - x[:, None] - drift) / deviation
    return density(z) @ amounts / deviation


@torch.no_grad()
def _boundary(
    exercise: Callable[[Tensor], Tensor],
    hold: Callable[[Tensor], Tensor],
    low: float,
    high: float,
    above: bool,
    like: Tensor,
) -> float:
    """Where the gain of exercising changes sign; exercise pays on one side."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        x = like.new_tensor([middle])
        pays = bool((exercise(x) > hold(x))[0])
        low, high = (low, middle) if pays == above else (middle, high)
    return 0.5 * (low + high)
