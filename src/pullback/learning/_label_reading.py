"""One output's rows made ready, and verdicts read off the ladder of distances.

Every estimate is read from the finest distance upwards: noise hides the answer at short distance,
curvature falsifies it at long distance, and the first distance that decides has the last word.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pullback.learning._label_moments import Booleans, Estimates, Moments, dyadic, moments
from pullback.learning._neighbours import Floats, Ints, Neighbourhood, Pairs, neighbourhood

Verdict = Literal["consistent", "inconsistent", "cannot tell"]
Range = tuple[float, float]

ROWS = 8192
FEWEST_ROWS = 16
# A factor outside FAULT, errors included, is a fault; one inside SOUND, errors included, is none.
# Between the two lies what curvature can make of right labels before the ladder shows it.
FAULT: Range = (0.6, 1.0 / 0.6)
SOUND: Range = (0.2, 3.0)
# λ is the part of the bending of y that the labels follow; shuffled rows give 0.
DISAGREE: Range = (0.4, np.inf)
# Where a label says 0, the part of all that moves y which is due to that input, plus one.
STILL: Range = (0.85, 1.15)
# What labels with nothing fitted may leave of what the given ones leave, to be preferred to them.
FAR_BETTER = 0.25
# A column that moves y by less than this part of its variation is not worth an alarm.
SMALLEST_SHARE = 0.05


@dataclass(frozen=True)
class Read:
    """What the ladder says of one coefficient."""

    value: float = np.nan
    error: float = np.inf
    verdict: Verdict = "cannot tell"

    @property
    def bad(self) -> bool:
        """A fault, clearly."""
        return self.verdict == "inconsistent"


@dataclass(frozen=True)
class Reading:
    """What the ladder says of one output's labels.

    Attributes:
        factors: c of each input.
        common: one c for all inputs.
        slopes: where the labels of input j are 0, what y does all the same, [D].
        agreement: λ.
        misfit: Σ(Δy - H)² / ΣΔy² over nearest neighbours.
    """

    factors: tuple[Read, ...]
    common: Read
    slopes: tuple[Read, ...]
    agreement: Read
    misfit: float

    @property
    def bad(self) -> bool:
        """Anything is wrong."""
        return any(one.bad for one in (*self.factors, *self.slopes, self.common, self.agreement))

    @property
    def bad_inputs(self) -> list[int]:
        """Inputs whose factor is not 1."""
        return [j for j, one in enumerate(self.factors) if one.bad]

    @property
    def sound(self) -> bool:
        """Nothing is wrong, and something is known to be right."""
        return not self.bad and any(
            one.verdict == "consistent" for one in (*self.factors, self.common)
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """One output, its rows arranged.

    Attributes:
        output: its number k.
        hood: the rows.
        ladder: pairs at growing distance.
        y: value labels, [n].
        labels: derivative labels of all outputs, in units of `hood.x`, [K, n, D].
        inputs: the columns of x that vary, [D].
        spread: of those, [D].
        known: inputs with any label of this output, [D].
        zero: inputs whose labels are all 0, [D].
        standardised: every column of x has mean 0 and standard deviation 1.
    """

    output: int
    hood: Neighbourhood
    ladder: tuple[Pairs, ...]
    y: Floats
    labels: Floats
    inputs: Ints
    spread: Floats
    known: Booleans
    zero: Booleans
    standardised: bool

    @property
    def own(self) -> Floats:
        """The labels of this output, [n, D]."""
        return self.labels[self.output]

    def read(self, g: Floats) -> Reading:
        """Read the ladder with labels `g` [n, D] in the place of those given."""
        free = ~self.known | (g == 0).all(axis=0)
        ladder = [moments(self.hood, pairs, self.y, g, free) for pairs in self.ladder]
        inputs = range(g.shape[1])

        def of(field: Callable[[Moments], Estimates]) -> list[Estimates]:
            return [field(level) for level in ladder]

        factors = of(lambda level: level.factors)
        slopes = of(lambda level: level.slopes)
        return Reading(
            tuple(read(factors, j) for j in inputs),
            read(of(lambda level: level.common), 0),
            tuple(_read_slopes(slopes, j) for j in inputs),
            read(of(lambda level: level.agreement), 0, fault=DISAGREE, sound=DISAGREE),
            self.misfit(g),
        )

    def misfit(self, g: Floats) -> float:
        """Σ(Δy - H)² / ΣΔy² over nearest neighbours."""
        return self._misfit((self._slopes(g) * self._steps).sum(axis=1))

    def misfits_of_swaps(
        self, g: Floats, pairs: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], float]:
        """The misfit with two columns of dydx the other way round, for each of `pairs`."""
        slopes, steps = self._slopes(g) / self.spread, self._steps * self.spread
        total = (slopes * steps).sum(axis=1)
        return {
            (j, k): self._misfit(
                total - (slopes[:, j] - slopes[:, k]) * (steps[:, j] - steps[:, k])
            )
            for j, k in pairs
        }

    def far_better(self, g: Floats) -> bool:
        """Whether labels `g` leave clearly less than a quarter of what the given ones leave.

        No noise and no curvature of right labels does that to labels with nothing fitted, which
        then also explain three quarters of Δy. It is for few rows with exact labels, where a
        standard error has too few degrees of freedom.
        """
        if self.misfit(g) > FAR_BETTER * min(1.0, self.misfit(self.own)):
            return False
        a, b = self.ladder[0].a, self.ladder[0].b
        change = self.y[b] - self.y[a]
        left = [(change - (self._slopes(one) * self._steps).sum(axis=1)) for one in (self.own, g)]
        gain = (FAR_BETTER * left[0] ** 2 - left[1] ** 2)[:, None]
        error, _ = dyadic(gain - gain.mean(), a, b, len(self.y))
        return bool(gain.sum() > 3.0 * error[0])

    def _slopes(self, g: Floats) -> Floats:
        return 0.5 * (g[self.ladder[0].a] + g[self.ladder[0].b])

    @cached_property
    def _steps(self) -> Floats:
        return self.hood.x[self.ladder[0].b] - self.hood.x[self.ladder[0].a]

    def _misfit(self, predicted: Floats) -> float:
        change = self.y[self.ladder[0].b] - self.y[self.ladder[0].a]
        return float(((change - predicted) ** 2).sum() / ((change**2).sum() + 1e-300))


def prepare(
    x: Floats, y: Floats, dydx: Floats, output: int, rng: np.random.Generator
) -> Problem | None:
    """Rows of one output that can be compared, or None where there are too few; y [N, K]."""
    rows = _usable_rows(x, y[:, output], dydx[:, output], rng, outputs=y.shape[1])
    x, values, dydx = x[rows], y[rows, output], dydx[rows]
    if len(rows) < FEWEST_ROWS or not np.ptp(values):
        return None
    inputs = np.flatnonzero(np.ptp(x, axis=0) > 1e-12 * np.abs(x).max(axis=0))
    if not len(inputs):
        return None
    x = x[:, inputs]
    mean, spread = x.mean(axis=0), x.std(axis=0)
    labels = dydx[:, :, inputs] * spread
    own = labels[:, output]
    hood = neighbourhood(x, _importance(x, values, own))
    return Problem(
        output=output,
        hood=hood,
        ladder=tuple(hood.pairs(rng)),
        y=values[hood.order],
        labels=np.stack([_filled(labels[hood.order, k], hood) for k in range(y.shape[1])]),
        inputs=inputs,
        spread=spread,
        known=~np.isnan(own).all(axis=0),
        zero=((own == 0) | np.isnan(own)).all(axis=0) & ~np.isnan(own).all(axis=0),
        standardised=bool(np.all(np.abs(mean) < 0.02) and np.all(np.abs(spread - 1.0) < 0.02)),
    )


def _usable_rows(
    x: Floats, y: Floats, dydx: Floats, rng: np.random.Generator, outputs: int
) -> Ints:
    """Rows with a value and derivatives, at most ROWS or so, and none twice.

    Only rows whose derivatives are all known, if these are enough; else gaps will be filled.
    """
    unknown = ~np.isfinite(dydx)
    unknown = unknown[:, ~unknown.all(axis=0)]  # a column without any label costs no row
    if not unknown.shape[1]:
        return np.zeros(0, dtype=np.intp)
    some = np.isfinite(x).all(axis=1) & np.isfinite(y)
    partly, wholly = some & ~unknown.all(axis=1), some & ~unknown.any(axis=1)
    enough = wholly.sum() >= max(200, partly.sum() // 4) or wholly.sum() == partly.sum()
    rows = np.flatnonzero(wholly if enough else partly)
    # Half a second at most: the work is rows × inputs × outputs.
    most = max(1024, min(ROWS, 24 * ROWS // max(1, x.shape[1]), 2 * ROWS // outputs))
    if len(rows) > most:
        rows = np.sort(rng.choice(rows, most, replace=False))
    # A copied row carries the same noise: it is no second observation.
    return rows[np.sort(np.unique(x[rows], axis=0, return_index=True)[1])]


def _importance(x: Floats, y: Floats, g: Floats) -> Floats:
    """How much each column moves y, by y alone or by the labels, at least a tenth of the most, [D].

    Rows near in the columns that matter are worth more than rows near in all of them. Both ways are
    taken because the labels may be wrong, and y may be even in x.
    """
    design = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])
    by_value = np.abs(np.linalg.lstsq(design, y, rcond=None)[0][1:])
    known = np.isfinite(g)
    by_label = np.abs(np.where(known, g, 0.0)).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    best = [by / (by.max() or 1.0) for by in (by_value, by_label)]
    return np.maximum(np.maximum(*best), 0.1)


def _filled(g: Floats, hood: Neighbourhood) -> Floats:
    """Gaps filled with the mean of what is known in the block around, [n, D]."""
    # Blocks so large that the noise of the mean, which instruments share, is small.
    for size in [size for size in hood.blocks if size >= 32] or hood.blocks[-1:]:
        known = np.isfinite(g)
        if known.all():
            return g
        blocks = np.where(known, g, 0.0).reshape(-1, size, g.shape[1])
        count = known.reshape(blocks.shape).sum(axis=1)
        mean = blocks.sum(axis=1) / np.where(count > size // 8, count, np.nan)
        g = np.where(known, g, np.repeat(mean, size, axis=0))
    return np.where(np.isfinite(g), g, 0.0)


def read(
    ladder: Sequence[Estimates],
    column: int,
    fault: Range = FAULT,
    sound: Range = SOUND,
    *,
    slope: bool = False,
) -> Read:
    """The verdict of the finest level that decides, the number of the level that knows it best.

    A slope is read as one plus the part of y's variation that it makes.
    """
    found = []
    for level, one in enumerate(ladder):
        unit = float(one.share[column]) if slope else 1.0
        value, error = unit * float(one.value[column]), unit * float(one.error[column])
        bias = unit * _bias(ladder, level, column)
        if one.usable[column] and np.isfinite(value + error + bias):
            found.append((one, value + slope, error, bias))
    if not found:
        return Read()
    _, value, error, _ = min(found, key=lambda each: 3.0 * each[2] + each[3])
    for one, here, wide, bias in found:
        clear, likely = float(one.critical[column]) * wide + bias, 3.0 * wide + bias
        outside = here + clear < fault[0] or here - clear > fault[1]
        share = 1.0 if slope else float(one.share[column])
        if outside and abs(here - 1.0) * share > SMALLEST_SHARE:
            return Read(value, error, "inconsistent")
        if sound[0] < here - likely and here + likely < sound[1]:
            return Read(here, wide, "consistent")
    return Read(value, error)


def _bias(ladder: Sequence[Estimates], level: int, column: int) -> float:
    """Allowance for the trapezoid's bias, from how the estimate changes with distance.

    With c(h) = c + b h², the bias at h is (c(h) - c(t)) h² / (h² - t²) for any other length t. At
    the finest level every longer one is asked. Above it the next finer one is, and every other
    finer one for what its noise leaves of the change.
    """
    if len(ladder) == 1:
        return np.inf
    allowance = 0.0
    for other in ladder[1:] if level == 0 else ladder[level - 1 : level]:
        allowance = max(allowance, _change(ladder[level], other, column, noise=0.0))
    for other in ladder[:level]:
        allowance = max(allowance, _change(ladder[level], other, column, noise=2.0))
    return allowance


def _change(here: Estimates, other: Estimates, column: int, noise: float) -> float:
    lever = here.length**2 / (abs(here.length**2 - other.length**2) + 1e-300)
    change = abs(float(here.value[column] - other.value[column]))
    if noise:  # an estimate that knows nothing objects to nothing
        change = max(0.0, change - noise * float(other.error[column]))
    return change * min(lever, 5.0)


def _read_slopes(ladder: Sequence[Estimates], j: int) -> Read:
    """The worse of the slope and its change along x_j, where the labels say 0."""
    inputs = len(ladder[0].value) // 2
    both = [read(ladder, column, STILL, STILL, slope=True) for column in (j, j + inputs)]
    return next((one for one in both if one.bad), both[0])
