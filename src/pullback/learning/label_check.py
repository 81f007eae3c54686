"""Do the derivative labels agree with the value labels? Asked before training, answered by moments.

Every estimate is read from the finest distance upwards: noise hides the answer at short distance,
curvature falsifies it at long distance, and the first distance that decides has the last word. See
`_label_moments` for the moments and the derivation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pullback.learning._label_moments import Estimates, Moments, moments
from pullback.learning._neighbours import Floats, Neighbourhood, Pairs, neighbourhood

Verdict = Literal["consistent", "inconsistent", "cannot tell"]

ROWS = 8192
FEWEST_ROWS = 16
# A factor outside this range, errors included, is a fault; inside the wider one, errors included,
# there is none. Curvature biases right labels by some tens of per cent at worst before it shows.
FAULT = (0.6, 1.0 / 0.6)
SOUND = (0.2, 3.0)
# What moves y by less than this part of its variation is no one's loss.
SMALLEST_SHARE = 0.05


@dataclass(frozen=True)
class Factor:
    """How the labels of one derivative relate to the truth: true derivative ≈ value × label.

    Attributes:
        output, input: which derivative.
        value: the estimate; NaN where there is none.
        standard_error: of it, noise and shared rows included, curvature not.
        verdict: "consistent", "inconsistent" or "cannot tell".
    """

    output: int
    input: int
    value: float
    standard_error: float
    verdict: Verdict


@dataclass(frozen=True)
class LabelFinding:
    """One fault of the labels.

    Attributes:
        kind: "sign", "factor", "swapped", "scaled-inputs", "other-output", "zero" or "unrelated".
        output: whose derivative labels.
        inputs: the inputs concerned.
        value: the factor found, true derivative ≈ value × label, where one was.
        sentence: what was found.
        remedy: what to do about it.
    """

    kind: str
    output: int
    inputs: tuple[int, ...]
    value: float | None
    sentence: str
    remedy: str


@dataclass(frozen=True)
class LabelReport:
    """What `check_labels` found; `ok` when it found nothing."""

    factors: tuple[Factor, ...]
    findings: tuple[LabelFinding, ...]

    @property
    def ok(self) -> bool:
        """No fault was found, which is less than a proof that there is none."""
        return not self.findings


def check_labels(
    x: ArrayLike,
    y: ArrayLike,
    dydx: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    rng: np.random.Generator | int | None = None,
) -> LabelReport:
    """Compare derivative labels with finite differences of the value labels.

    Finds c with ∂y_k/∂x_j ≈ c · dydx[:, k, j] by instrumental variables over pairs of near rows, so
    that noise in the labels, also noise shared by y and dydx, neither biases c nor raises an alarm.
    Flags c only where it is clearly (p < 1e-6) and by more than 40 % not 1.

    Args:
        x: inputs, [N, D].
        y: value labels, [N, K] or [N]; NaN where unknown.
        dydx: derivative labels ∂y/∂x (not ∂(mean y)/∂x), [N, K, D] or [N, D]; NaN where unknown.
        names: of the D inputs.
        output_names: of the K outputs.
        rng: of the random pairs; the default is the same on every call.

    Returns:
        Estimates for each output and input, and findings. Nothing is raised for bad labels: the
        caller decides.

    >>> x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    >>> y, dydx = np.sin(x[:, 0]) * x[:, 1], np.stack([np.cos(x[:, 0]) * x[:, 1], np.sin(x[:, 0])], 1)
    >>> check_labels(x, y, dydx).ok
    True
    >>> check_labels(x, y, -dydx).findings[0].sentence
    'the derivatives of y have the wrong sign: the slopes of y are -1 times the labels'
    """
    x, y, dydx = (np.asarray(array, dtype=np.float64) for array in (x, y, dydx))
    y = y.reshape(len(y), -1)
    dydx = dydx.reshape(len(x), y.shape[1], x.shape[1])
    generator = np.random.default_rng(0 if rng is None else rng)
    words = _Words.of(names, output_names, x.shape[1], y.shape[1])
    factors: list[Factor] = []
    findings: list[LabelFinding] = []
    for output in range(y.shape[1]):
        problem = _Problem.of(x, y, dydx, output, generator)
        if problem is None:
            factors += _no_factors(output, x.shape[1])
            continue
        reading = problem.read(problem.labels[output])
        factors += _report(problem, reading)
        findings += _diagnose(problem, reading, words)
    return LabelReport(tuple(factors), tuple(findings))


# Reading one ladder


@dataclass(frozen=True, eq=False)
class _Read:
    """What the ladder says of one coefficient."""

    value: float = np.nan
    error: float = np.inf
    verdict: Verdict = "cannot tell"

    @property
    def bad(self) -> bool:
        return self.verdict == "inconsistent"


def _read(
    ladder: Sequence[Estimates],
    column: int,
    fault: tuple[float, float] = FAULT,
    sound: tuple[float, float] = SOUND,
) -> _Read:
    """The verdict of the finest level that decides; else the best estimate without one."""
    best = _Read()
    least = np.inf
    for level, estimates in enumerate(ladder):
        value, error = float(estimates.value[column]), float(estimates.error[column])
        if not (estimates.usable[column] and np.isfinite(value + error)):
            continue
        bias = _curvature(ladder, level, column)
        clear = float(estimates.critical[column]) * error + bias
        likely = 3.0 * error + bias
        outside = value + clear < fault[0] or value - clear > fault[1]
        if outside and abs(value - 1.0) * estimates.share[column] > SMALLEST_SHARE:
            return _Read(value, error, "inconsistent")
        if sound[0] < value - likely and value + likely < sound[1]:
            return _Read(value, error, "consistent")
        if likely < least:
            least, best = likely, _Read(value, error)
    return best


def _curvature(ladder: Sequence[Estimates], level: int, column: int) -> float:
    """Allowance for the trapezoid's bias, from how the estimate changes with distance.

    With c(h) = c + b h², the bias at h is (c(h) - c(t)) h² / (h² - t²) for any other length t. At
    the finest level every longer one is asked; above it, the next finer one.
    """
    here = ladder[level]
    others = ladder[1:] if level == 0 else ladder[level - 1 : level]
    allowance = 0.0 if len(ladder) > 1 else np.inf
    for other in others:
        lever = here.length**2 / abs(here.length**2 - other.length**2)
        change = abs(here.value[column] - other.value[column])
        allowance = max(allowance, change * min(lever, 5.0))  # NaN: never decided
    for finer in ladder[:level]:
        beyond = abs(here.value[column] - finer.value[column]) - 3.0 * finer.error[column]
        if np.isfinite(beyond):
            allowance = max(allowance, beyond)
    return float(allowance)


@dataclass(frozen=True, eq=False)
class _Reading:
    """Everything the ladder says of one output's labels."""

    factors: tuple[_Read, ...]
    common: _Read
    slopes: tuple[_Read, ...]
    agreement: _Read

    @property
    def bad(self) -> bool:
        singles = (*self.factors, *self.slopes, self.common, self.agreement)
        return any(read.bad for read in singles)

    @property
    def bad_inputs(self) -> list[int]:
        return [j for j, read in enumerate(self.factors) if read.bad]


# One output


@dataclass(frozen=True, eq=False)
class _Problem:
    """One output, its rows arranged: labels in units of the arranged x, [K, n, D]."""

    output: int
    hood: Neighbourhood
    ladder: tuple[Pairs, ...]
    y: Floats
    labels: Floats
    varying: np.ndarray
    spread: Floats
    known: np.ndarray
    zero: np.ndarray
    standardised: bool

    @classmethod
    def of(
        cls, x: Floats, y: Floats, dydx: Floats, output: int, rng: np.random.Generator
    ) -> "_Problem | None":
        rows = _usable_rows(x, y[:, output], dydx[:, output], rng)
        if len(rows) < FEWEST_ROWS:
            return None
        x, values, dydx = x[rows], y[rows, output], dydx[rows]
        spread = x.std(axis=0)
        varying = spread > 1e-12 * (1.0 + np.abs(x).max(axis=0))
        if not varying.any() or not np.ptp(values):
            return None
        x, spread = x[:, varying], spread[varying]
        labels = dydx[:, :, varying] * spread
        known = ~np.isnan(labels[:, output]).all(axis=0)
        hood = neighbourhood(x, _relevance(x, values, labels[:, output]))
        labels = np.stack([_filled(labels[hood.order, k], hood) for k in range(y.shape[1])])
        zero = known & (labels[output] == 0).all(axis=0)
        standardised = bool(
            (np.abs(x.mean(axis=0)) < 0.02).all() and (np.abs(spread - 1.0) < 0.02).all()
        )
        return cls(
            output,
            hood,
            tuple(hood.pairs(rng)),
            values[hood.order],
            labels,
            varying,
            spread,
            known,
            zero,
            standardised,
        )

    def read(self, g: Floats) -> _Reading:
        """Read the ladder with labels `g` [n, D] in place of those given."""
        free = ~self.known | (g == 0).all(axis=0)
        ladder = [moments(self.hood, pairs, self.y, g, free) for pairs in self.ladder]
        inputs = g.shape[1]

        def of(field: Callable[[Moments], Estimates]) -> list[Estimates]:
            return [field(level) for level in ladder]

        factors, slopes = of(lambda m: m.factors), of(lambda m: m.slopes)
        agreement = of(lambda m: m.agreement)
        return _Reading(
            tuple(_read(factors, j) for j in range(inputs)),
            _read(of(lambda m: m.common), 0),
            tuple(_read_slope(slopes, j) for j in range(2 * inputs)),
            _read(agreement, 0, fault=(0.4, np.inf), sound=(0.4, np.inf)),
        )


def _read_slope(ladder: Sequence[Estimates], column: int) -> _Read:
    """A slope where the label says 0, in parts of all that moves y."""
    shifted = [replace(level, value=1.0 + level.value) for level in ladder]
    return _read(shifted, column, (0.85, 1.15), (0.85, 1.15))


def _usable_rows(x: Floats, y: Floats, dydx: Floats, rng: np.random.Generator) -> np.ndarray:
    """Rows with a value and derivatives, all of them if enough have that, at most ROWS, none twice."""
    some = np.isfinite(x).all(axis=1) & np.isfinite(y)
    unknown = np.isnan(dydx)
    partly = some & ~(unknown | unknown.all(axis=0)).all(axis=1)
    wholly = some & ~(unknown & ~unknown.all(axis=0)).any(axis=1)
    enough = wholly.sum() >= max(200, partly.sum() // 4) or wholly.sum() == partly.sum()
    rows = np.flatnonzero(wholly if enough else partly)
    if len(rows) > ROWS:
        rows = np.sort(rng.choice(rows, ROWS, replace=False))
    if not len(rows):
        return rows
    # A copied row carries the same noise: it is no second observation.
    return rows[np.sort(np.unique(x[rows], axis=0, return_index=True)[1])]


def _relevance(x: Floats, y: Floats, g: Floats) -> Floats:
    """How much each column moves y, by y alone or by the labels, at least a tenth of the most, [D].

    Rows near in the columns that matter are worth more than rows near in all of them. Both ways are
    taken because labels may be wrong, and y may be even in x.
    """
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.column_stack([np.ones(len(x)), scaled])
    by_value = np.abs(np.linalg.lstsq(design, y, rcond=None)[0][1:])
    known = ~np.isnan(g)
    by_label = np.abs(np.where(known, g, 0.0)).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    least = np.full(x.shape[1], 0.1)
    return np.maximum.reduce(
        [least, by_value / (by_value.max() or 1), by_label / (by_label.max() or 1)]
    )


def _filled(g: Floats, hood: Neighbourhood) -> Floats:
    """Gaps filled with the mean of what is known in the block around, [n, D]."""
    gaps = np.isnan(g)
    if not gaps.any():
        return g
    g = g.copy()
    # Blocks so large that the noise of the mean, which instruments share, is small.
    for size in [size for size in hood.blocks if size >= 32] or hood.blocks[-1:]:
        known = ~np.isnan(g)
        blocks = np.where(known, g, 0.0).reshape(-1, size, g.shape[1])
        count = known.reshape(blocks.shape).sum(axis=1)
        mean = blocks.sum(axis=1) / np.where(count > size // 8, count, np.nan)
        g = np.where(known, g, np.repeat(mean, size, axis=0))
    return np.where(np.isnan(g), 0.0, g)


# What is wrong, and what to do about it


@dataclass(frozen=True)
class _Words:
    """Names for the sentences."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Sequence[str] | None, outputs: Sequence[str] | None, inputs: int, count: int
    ) -> "_Words":
        default = ["y"] if count == 1 else [f"y[{k}]" for k in range(count)]
        return cls(tuple(names or [f"x[{j}]" for j in range(inputs)]), tuple(outputs or default))

    def inputs_of(self, columns: Sequence[int]) -> str:
        return ", ".join(self.inputs[j] for j in columns)


def _report(problem: _Problem, reading: _Reading) -> Iterator[Factor]:
    places = np.flatnonzero(problem.varying)
    reads = dict(zip(places.tolist(), reading.factors, strict=True))
    slopes = dict(zip(places.tolist(), reading.slopes, strict=False))
    zero = set(places[problem.zero].tolist())
    for j in range(len(problem.varying)):
        read = reads.get(j, _Read())
        if j in zero:
            read = _Read(verdict=slopes[j].verdict)
        yield Factor(problem.output, j, float(read.value), float(read.error), read.verdict)


def _no_factors(output: int, inputs: int) -> Iterator[Factor]:
    for j in range(inputs):
        yield Factor(output, j, float("nan"), float("inf"), "cannot tell")


def _diagnose(problem: _Problem, reading: _Reading, words: _Words) -> list[LabelFinding]:
    """Name the faults, the simplest explanation that leaves nothing wrong first."""
    if not reading.bad:
        return []
    report = _Reporter(problem, words)
    whole = _other_output(problem, reading, report) or _common_factor(problem, reading, report)
    if whole:
        return [whole]
    findings = _zeros(problem, reading, report)
    g = problem.labels[problem.output].copy()
    swaps, g, reading = _swaps(problem, g, reading, report)
    findings += swaps
    singles, g = _single_factors(problem, g, reading, report)
    findings += singles
    after = problem.read(g) if singles else reading
    if after.agreement.bad and not problem.zero.all():
        return [report.unrelated(range(g.shape[1]))]
    return findings


def _other_output(problem: _Problem, reading: _Reading, report: "_Reporter") -> LabelFinding | None:
    for other in range(len(problem.labels)):
        if other == problem.output:
            continue
        trial = problem.read(problem.labels[other])
        sound = sum(read.verdict == "consistent" for read in (*trial.factors, trial.common))
        if not trial.bad and sound:
            return report.other_output(other)
    return None


def _common_factor(
    problem: _Problem, reading: _Reading, report: "_Reporter"
) -> LabelFinding | None:
    value = reading.common.value
    if not reading.common.bad or abs(value) < 3.0 * reading.common.error:
        return None
    if problem.read(value * problem.labels[problem.output]).bad:
        return None
    labelled = np.flatnonzero(problem.known & ~problem.zero)
    if len(labelled) == 1 and problem.standardised and value > 0:
        return report.scaled(labelled, value)
    return report.factor(labelled, value, every=True)


def _zeros(problem: _Problem, reading: _Reading, report: "_Reporter") -> list[LabelFinding]:
    inputs = len(problem.zero)
    moved = [
        j
        for j in np.flatnonzero(problem.zero)
        if reading.slopes[j].bad or reading.slopes[j + inputs].bad
    ]
    return [report.zero(moved)] if moved else []


def _swaps(
    problem: _Problem, g: Floats, reading: _Reading, report: "_Reporter"
) -> tuple[list[LabelFinding], Floats, _Reading]:
    findings: list[LabelFinding] = []
    while len(reading.bad_inputs) > 1:
        trials = [_swap(problem, g, pair) for pair in _likely_swaps(reading)]
        trials = [trial for trial in trials if trial[0] < np.inf]
        if not trials:
            break
        _, pair, g, reading = min(trials, key=lambda trial: trial[0])
        findings.append(report.swapped(pair))
    return findings, g, reading


def _likely_swaps(reading: _Reading) -> list[tuple[int, int]]:
    """Pairs of bad inputs; where gradients are near constant, the factors of a swap are inverse."""

    def off(pair: tuple[int, int]) -> float:
        product = reading.factors[pair[0]].value * reading.factors[pair[1]].value
        return abs(np.log(abs(product) + 1e-300))

    return sorted(combinations(reading.bad_inputs, 2), key=off)[:15]


def _swap(
    problem: _Problem, g: Floats, pair: tuple[int, int]
) -> tuple[float, tuple[int, int], Floats, _Reading]:
    """Labels with two columns swapped, and how far from 1 their factors then are."""
    spread = problem.spread
    first, second = pair
    swapped = g.copy()
    swapped[:, first] = g[:, second] * spread[first] / spread[second]
    swapped[:, second] = g[:, first] * spread[second] / spread[first]
    reading = problem.read(swapped)
    reads = [reading.factors[j] for j in pair]
    good = not any(read.bad for read in reads) and any(
        read.verdict == "consistent" for read in reads
    )
    off = max(abs(read.value - 1.0) for read in reads) if good else np.inf
    return float(off), pair, swapped, reading


def _single_factors(
    problem: _Problem, g: Floats, reading: _Reading, report: "_Reporter"
) -> tuple[list[LabelFinding], Floats]:
    findings: list[LabelFinding] = []
    g = g.copy()
    bad = reading.bad_inputs
    positive = all(reading.factors[j].value > 3.0 * reading.factors[j].error for j in bad)
    if bad and problem.standardised and positive:
        findings.append(report.scaled(bad, None))
    for j in bad:
        read = reading.factors[j]
        if abs(read.value) < 3.0 * read.error:
            findings.append(report.unrelated([j]))
        elif not (problem.standardised and positive):
            findings.append(report.factor([j], read.value, every=False))
        g[:, j] *= read.value
    return findings, g


@dataclass(frozen=True, eq=False)
class _Reporter:
    """Findings in words."""

    problem: _Problem
    words: _Words

    def _finding(
        self, kind: str, columns: Sequence[int], value: float | None, sentence: str, remedy: str
    ) -> LabelFinding:
        return LabelFinding(
            kind, self.problem.output, self._places(columns), value, sentence, remedy
        )

    def _places(self, columns: Sequence[int]) -> tuple[int, ...]:
        places = np.flatnonzero(self.problem.varying)
        return tuple(int(places[j]) for j in columns)

    @property
    def _output(self) -> str:
        return self.words.outputs[self.problem.output]

    def _by(self, columns: Sequence[int]) -> str:
        return f"{self._output} by {self.words.inputs_of(self._places(columns))}"

    def factor(self, columns: Sequence[int], value: float, *, every: bool) -> LabelFinding:
        """A sign or a factor, of one derivative or of all."""
        of = self._output if every else self._by(columns)
        noun, has = ("derivatives", "have") if every else ("derivative", "has")
        slopes = f"the slopes of {self._output} are {value:.2g} times the labels"
        value = float(value)
        if -1.0 / FAULT[0] < value < -FAULT[0]:
            return self._finding(
                "sign",
                columns,
                value,
                f"the {noun} of {of} {has} the wrong sign: {slopes}",
                "multiply them by -1 (a force is minus the derivative of an energy)",
            )
        return self._finding(
            "factor",
            columns,
            value,
            f"the {noun} of {of} {has} another unit than values and inputs: {slopes}",
            f"multiply them by {value:.3g}, or bring x, y and dydx to the same units",
        )

    def scaled(self, columns: Sequence[int], value: float | None) -> LabelFinding:
        """Inputs scaled without their derivatives."""
        return self._finding(
            "scaled-inputs",
            columns,
            value,
            f"the inputs have mean 0 and standard deviation 1, and the derivatives of "
            f"{self._by(columns)} are those by the unscaled inputs",
            "scale inside the estimator instead: DifferentialRegressor scales by itself; or multiply "
            "dydx by the scaler's scale_",
        )

    def swapped(self, pair: tuple[int, int]) -> LabelFinding:
        """Two columns in each other's place."""
        first, second = (self.words.inputs[j] for j in self._places(pair))
        return self._finding(
            "swapped",
            pair,
            None,
            f"the derivatives of {self._output} by {first} and by {second} are swapped",
            "bring the columns of dydx into the order of the columns of x",
        )

    def other_output(self, other: int) -> LabelFinding:
        """Derivatives of another output."""
        return self._finding(
            "other-output",
            range(len(self.problem.varying[self.problem.varying])),
            None,
            f"the derivatives of {self._output} do not fit it; those of {self.words.outputs[other]} do",
            "bring the outputs of dydx into the order of those of y: dydx[:, k] belongs to y[:, k]",
        )

    def zero(self, columns: Sequence[int]) -> LabelFinding:
        """Derivatives of zero where y moves."""
        return self._finding(
            "zero",
            columns,
            None,
            f"the derivatives of {self._by(columns)} are 0 in every row, but {self._output} moves",
            "a payoff or a rule with a jump has pathwise derivative 0: smooth the jump, or use the "
            "likelihood ratio method; if the derivatives are unknown, give NaN",
        )

    def unrelated(self, columns: Sequence[int]) -> LabelFinding:
        """Derivatives that do not follow y."""
        return self._finding(
            "unrelated",
            columns,
            None,
            f"the derivatives of {self._by(columns)} have nothing to do with the slopes of "
            f"{self._output}",
            "check that the rows of x, y and dydx are in the same order, and that dydx is that of y",
        )
