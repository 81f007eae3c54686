"""From estimates to named faults: the explanation that leaves least unexplained, in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pullback.learning._label_reading import FAULT, Problem, Read, Reading
from pullback.learning._neighbours import Floats

# Full readings are dear; the misfit over nearest neighbours says which ones to take.
SWAPS_KEPT = 3
MOST_READ = 4
PER_FACTOR = 0.005


@dataclass(frozen=True)
class LabelFinding:
    """One fault of the labels.

    Attributes:
        kind: "sign", "factor", "swapped", "scaled-inputs", "other-output", "zero" or "unrelated".
        output: whose derivative labels.
        inputs: the inputs concerned.
        value: the factor found, true derivative ≈ value × label, where there is one.
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
class _Explanation:
    """Labels put right in one way, with the findings if that way is the right one.

    Attributes:
        findings: in words.
        labels: put right, [n, D].
        misfit: of these labels, and a little for each factor that was fitted: where a swap and two
            factors do equally well, as with constant derivatives, it is a swap.
        columns: those swapped.
    """

    findings: list[LabelFinding]
    labels: Floats
    misfit: float
    columns: tuple[int, ...] = ()


def diagnose(
    problem: Problem, reading: Reading, names: Sequence[str], output_names: Sequence[str]
) -> list[LabelFinding]:
    """Name the faults of one output: the best single cause that leaves nothing wrong, or more."""
    words = _Words(problem, tuple(names), tuple(output_names))
    simple = [
        *_other_outputs(problem, words),
        *_swaps(problem, problem.own, reading, words),
        *_signs(problem, words),
    ]
    if not reading.bad:
        best = min(simple, key=lambda one: one.misfit)
        return best.findings if problem.far_better(best.labels) else []
    fitted = [
        *_common_factor(problem, reading, words),
        *_single_factors(problem, problem.own, reading, words),
    ]
    for one in sorted([*simple, *fitted], key=lambda one: one.misfit)[:MOST_READ]:
        if problem.read(one.labels).sound:
            return one.findings
    return _several(problem, reading, words)


def _several(problem: Problem, reading: Reading, words: "_Words") -> list[LabelFinding]:
    moved = [j for j in np.flatnonzero(problem.zero).tolist() if reading.slopes[j].bad]
    findings = [words.zero(moved)] if moved else []
    labels = problem.own
    for swap in _swaps(problem, labels, reading, words)[:1] if reading.bad_inputs else []:
        after = problem.read(swap.labels)
        if all(after.factors[j].verdict == "consistent" for j in swap.columns):
            findings += swap.findings
            labels, reading = swap.labels, after
    for rest in _single_factors(problem, labels, reading, words):
        findings += rest.findings
        labels = rest.labels
        reading = problem.read(labels)
    if reading.agreement.bad and not problem.zero.all():
        # Even with each factor put right the labels do not follow y.
        return [words.unrelated(range(labels.shape[1]))]
    return findings


def _other_outputs(problem: Problem, words: "_Words") -> Iterable[_Explanation]:
    for other, labels in enumerate(problem.labels):
        if other != problem.output:
            finding = words.other_output(other)
            yield _Explanation([finding], labels, problem.misfit(labels))


def _signs(problem: Problem, words: "_Words") -> Iterable[_Explanation]:
    """All signs, and each one, the other way round."""
    every = list(range(problem.own.shape[1]))
    for columns in [every, *([j] for j in every if len(every) > 1)]:
        signs = np.ones(len(every))
        signs[columns] = -1.0
        finding = words.factor(columns, -1.0, every=columns == every)
        yield _Explanation([finding], problem.own * signs, problem.misfit(problem.own * signs))


def _common_factor(problem: Problem, reading: Reading, words: "_Words") -> Iterable[_Explanation]:
    common = reading.common
    if common.bad and not _may_be_zero(common):
        labels = common.value * problem.own
        labelled = np.flatnonzero(problem.known & ~problem.zero).tolist()
        if len(labelled) == 1 and problem.standardised and common.value > 0:
            finding = words.scaled(labelled)
        else:
            finding = words.factor(labelled, common.value, every=True)
        yield _Explanation([finding], labels, problem.misfit(labels) + PER_FACTOR)


def _swaps(
    problem: Problem, labels: Floats, reading: Reading, words: "_Words"
) -> list[_Explanation]:
    """Swaps of two columns that leave less unexplained, best first."""
    bad = set(reading.bad_inputs)
    zero = set(np.flatnonzero(problem.zero).tolist())
    pairs = [
        pair
        for pair in combinations(range(labels.shape[1]), 2)
        if (bad & set(pair) if bad else not zero & set(pair))
    ]
    misfits = problem.misfits_of_swaps(labels, pairs)
    better = sorted((misfit, pair) for pair, misfit in misfits.items() if misfit < reading.misfit)
    return [
        _Explanation([words.swapped(pair)], _swapped(problem, labels, pair), misfit, columns=pair)
        for misfit, pair in better[:SWAPS_KEPT]
    ]


def _swapped(problem: Problem, labels: Floats, pair: tuple[int, int]) -> Floats:
    """Labels as they would be had two columns of dydx been the other way round."""
    there, back = list(pair), list(reversed(pair))
    swapped = labels.copy()
    swapped[:, there] = labels[:, back] * (problem.spread[there] / problem.spread[back])
    return swapped


def _single_factors(
    problem: Problem, labels: Floats, reading: Reading, words: "_Words"
) -> Iterable[_Explanation]:
    """A factor for each input that has one."""
    bad = reading.bad_inputs
    if not bad:
        return
    factors = np.ones(labels.shape[1])
    factors[bad] = [reading.factors[j].value for j in bad]
    reads = [reading.factors[j] for j in bad]
    clear = [one for one in reads if not _may_be_zero(one)]
    if problem.standardised and clear and all(one.value > 0 for one in clear):
        findings = [words.scaled(bad)]
    else:
        findings = [
            words.unrelated([j]) if _may_be_zero(one) else words.factor([j], one.value, every=False)
            for j, one in zip(bad, reads, strict=True)
        ]
    misfit = problem.misfit(labels * factors) + PER_FACTOR * len(bad)
    yield _Explanation(findings, labels * factors, misfit)


def _may_be_zero(one: Read) -> bool:
    return abs(one.value) < 3.0 * one.error


@dataclass(frozen=True)
class _Words:
    """Findings of one output in words; columns are those of `problem`."""

    problem: Problem
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def _places(self, columns: Iterable[int]) -> tuple[int, ...]:
        return tuple(int(self.problem.inputs[j]) for j in columns)

    @property
    def _output(self) -> str:
        return self.outputs[self.problem.output]

    def _by(self, columns: Iterable[int]) -> str:
        return f"{self._output} by {', '.join(self.names[j] for j in self._places(columns))}"

    def _finding(
        self,
        kind: str,
        columns: Iterable[int],
        sentence: str,
        remedy: str,
        value: float | None = None,
    ) -> LabelFinding:
        places = self._places(columns)
        return LabelFinding(kind, self.problem.output, places, value, sentence, remedy)

    def factor(self, columns: Sequence[int], value: float, *, every: bool) -> LabelFinding:
        """A sign or a factor, of one derivative or of all."""
        subject = f"the derivatives of {self._output if every else self._by(columns)}"
        slopes = f"the slopes of {self._output} are {value:.2g} times the labels"
        if -1.0 / FAULT[0] < value < -FAULT[0]:
            return self._finding(
                "sign",
                columns,
                f"{subject} have the wrong sign: {slopes}",
                "multiply them by -1 (a force is minus the derivative of an energy)",
                value,
            )
        return self._finding(
            "factor",
            columns,
            f"{subject} have another unit than values and inputs: {slopes}",
            f"bring x, y and dydx to the same units, or multiply these labels by {value:.3g}",
            value,
        )

    def scaled(self, columns: Sequence[int]) -> LabelFinding:
        """Inputs scaled without their derivatives."""
        return self._finding(
            "scaled-inputs",
            columns,
            "the inputs have mean 0 and standard deviation 1, and the derivatives of "
            f"{self._by(columns)} are by the inputs before that scaling",
            "scale inside the estimator instead: DifferentialRegressor scales by itself; "
            "or multiply dydx by the scaler's scale_",
        )

    def swapped(self, pair: tuple[int, int]) -> LabelFinding:
        """Two columns in each other's place."""
        first, second = (self.names[j] for j in self._places(pair))
        return self._finding(
            "swapped",
            pair,
            f"the derivatives of {self._output} by {first} and by {second} are swapped",
            "bring the columns of dydx into the order of the columns of x",
        )

    def other_output(self, other: int) -> LabelFinding:
        """Derivatives of another output."""
        return self._finding(
            "other-output",
            range(len(self.problem.inputs)),
            f"the derivatives of {self._output} do not fit it; those of {self.outputs[other]} do",
            "bring the outputs of dydx into the order of those of y",
        )

    def zero(self, columns: Sequence[int]) -> LabelFinding:
        """Derivatives of zero where y moves."""
        return self._finding(
            "zero",
            columns,
            f"the derivatives of {self._by(columns)} are 0 in every row, and {self._output} moves",
            "a payoff with a jump has pathwise derivatives of 0: smooth the jump, or use the "
            "likelihood ratio method; if the derivatives are unknown, give NaN",
        )

    def unrelated(self, columns: Iterable[int]) -> LabelFinding:
        """Derivatives that do not follow y."""
        return self._finding(
            "unrelated",
            (columns := list(columns)),
            f"the derivatives of {self._by(columns)} do not follow the slopes of {self._output}",
            "check that the rows of x, y and dydx are in one order, and that dydx is that of y",
        )
