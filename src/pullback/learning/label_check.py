"""Do the derivative labels agree with the value labels? A question to ask before training.

`_label_moments` has the derivation, `_label_reading` the verdicts, `_label_faults` the names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pullback.errors import ShapeError
from pullback.learning._label_faults import LabelFinding, diagnose
from pullback.learning._label_reading import Problem, Read, Reading, Verdict, prepare
from pullback.learning._neighbours import Floats

__all__ = ["LabelFactor", "LabelFinding", "LabelReport", "check_labels"]


@dataclass(frozen=True)
class LabelFactor:
    """How one derivative's labels relate to the slopes of y: true derivative ≈ value × label.

    Attributes:
        output: k, whose derivative.
        input: j, by which input.
        value: the estimate; NaN where there is none.
        standard_error: of it, from the noise of the labels; curvature is not in it.
        verdict: "consistent", "inconsistent" or "cannot tell".
    """

    output: int
    input: int
    value: float
    standard_error: float
    verdict: Verdict


@dataclass(frozen=True)
class LabelReport:
    """What `check_labels` found.

    Attributes:
        factors: one for each output and input, outputs first.
        findings: the faults, named.
    """

    factors: tuple[LabelFactor, ...]
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
    """Compare derivative labels with differences of the value labels between near rows.

    Estimates c in ∂y_k/∂x_j ≈ c · dydx[:, k, j] by instrumental variables, so that noise in the
    labels, also noise that y and dydx share, neither biases c nor raises an alarm. A finding needs
    c to be outside 0.6 to 1.67 by about five standard errors and by more than curvature can do; or
    other signs, another order of columns or another output to explain y four times as well.

    Args:
        x: inputs, [N, D].
        y: value labels, [N, K] or, for one output, [N]; NaN where unknown.
        dydx: derivative labels, rows ∂y_i/∂x_i, [N, K, D] or, for one output, [N, D]; NaN where
            unknown.
        names: of the D inputs, for the sentences.
        output_names: of the K outputs.
        rng: of subsampled rows and random pairs; by default the same on every call.

    Returns:
        Estimates for each output and input, and findings. Bad labels raise nothing and warn of
        nothing: that is for the caller to decide.

    Raises:
        ShapeError: the shapes do not fit one another.

    >>> x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    >>> y = np.sin(x[:, 0]) * x[:, 1]
    >>> dydx = np.stack([np.cos(x[:, 0]) * x[:, 1], np.sin(x[:, 0])], axis=1)
    >>> check_labels(x, y, dydx).ok
    True
    >>> check_labels(x, y, -dydx).findings[0].sentence
    'the derivatives of y have the wrong sign: the slopes of y are -1 times the labels'
    """
    inputs, values, slopes = _arrays(x, y, dydx)
    outputs, columns = slopes.shape[1:]
    names = names or [f"x[{j}]" for j in range(columns)]
    output_names = output_names or (["y"] if outputs == 1 else [f"y[{k}]" for k in range(outputs)])
    generator = np.random.default_rng(0 if rng is None else rng)
    factors: list[LabelFactor] = []
    findings: list[LabelFinding] = []
    for output in range(outputs):
        problem = prepare(inputs, values, slopes, output, generator)
        reading = problem.read(problem.own) if problem else None
        factors += _factors(problem, reading, output, columns)
        if problem and reading:
            findings += diagnose(problem, reading, names, output_names)
    return LabelReport(tuple(factors), tuple(findings))


def _arrays(x: ArrayLike, y: ArrayLike, dydx: ArrayLike) -> tuple[Floats, Floats, Floats]:
    inputs, values, slopes = (np.asarray(array, dtype=np.float64) for array in (x, y, dydx))
    if values.ndim == 1:
        values = values[:, None]
    if slopes.ndim == 2:
        slopes = slopes[:, None, :]
    if inputs.ndim != 2 or values.ndim != 2 or slopes.shape != (*values.shape, inputs.shape[1]):
        raise ShapeError(
            "check_labels: expected x [N, D], y [N] or [N, K], dydx [N, D] or [N, K, D]; got x "
            f"{list(np.shape(x))}, y {list(np.shape(y))}, dydx {list(np.shape(dydx))}. Flatten the "
            "trailing dimensions of x and dydx first."
        )
    return inputs, values, slopes


def _factors(
    problem: Problem | None, reading: Reading | None, output: int, columns: int
) -> Iterator[LabelFactor]:
    reads = [Read()] * columns
    if problem and reading:
        for j, place in enumerate(problem.inputs):
            reads[place] = reading.factors[j]
            if problem.zero[j]:  # no factor makes a slope of 0
                reads[place] = Read(verdict=reading.slopes[j].verdict)
    for j, one in enumerate(reads):
        yield LabelFactor(output, j, one.value, one.error, one.verdict)
