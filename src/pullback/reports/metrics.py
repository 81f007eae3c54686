"""How well values and derivatives are predicted, in figures that mean something at every point.

R² alone misleads: for a derivative that hardly varies its denominator is nearly nothing. So beside
it stand, for every output y and derivative J = ∂y/∂x,

    RMSE            √mean (ŷ - y)²                      in the quantity's own unit
    scaled RMSE     RMSE / sd y,   RMSE · sd x / sd y   free of units: what it costs in y
    cosine          ĝ·g / (|ĝ| |g|), g = (J₁ sd x₁, …)  of gradient rows, free of units
    right sign      share of rows with sign Ĵ = sign J

all over rows whose truth is known (not NaN), with standard deviations of the rows evaluated.

NOTE [Where a metric has no value]
None, with a note that says why, and never a NaN or an infinity:
R² where the truth is constant (spread within rounding) or fewer than two rows are known; a scaled
RMSE where sd y or sd x is zero; the cosine of a row whose true gradient is zero, which is left out
(a predicted zero against a true direction counts as cosine 0); the sign where the truth is zero,
that is, below 1e-9 of its largest size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pullback.learning.columns import Columns

Array = NDArray[np.float64]

# Spread relative to size below which numbers count as one number written with rounding.
_ROUNDING = 1e-12
_ZERO = 1e-9
# A derivative whose spread moves y by less than this share of sd y, or is less than this share of
# its own size: R² is defined, but says little.
_HARDLY = 0.01


@dataclass(frozen=True)
class Metric:
    """How well one output, or one derivative, is predicted.

    Attributes:
        name: such as price or dprice/dspot.
        rows: how many have a known truth.
        rmse: in the quantity's unit.
        scale: 1 / sd y, or sd x / sd y for a derivative: takes the unit from an error.
        r2: coefficient of determination.
        right_sign: share of rows with the right sign; for derivatives.
        note: why a figure is missing, or says little.
    """

    name: str
    rows: int
    rmse: float | None
    scale: float | None
    r2: float | None
    right_sign: float | None = None
    note: str = ""

    @property
    def scaled_rmse(self) -> float | None:
        """RMSE times scale, free of units."""
        return None if self.rmse is None or self.scale is None else self.rmse * self.scale


@dataclass(frozen=True)
class Direction:
    """How well the gradient of one output points.

    Attributes:
        output: its name.
        rows: how many have a true gradient that is known in part and not zero.
        cosine: mean over rows.
        low_cosine: the value that one row in twenty falls below.
    """

    output: str
    rows: int
    cosine: float | None
    low_cosine: float | None


@dataclass(frozen=True)
class Metrics:
    """Of K outputs, K·D derivatives (none where no derivative is known) and K gradients."""

    values: tuple[Metric, ...]
    derivatives: tuple[Metric, ...] = ()
    directions: tuple[Direction, ...] = ()

    @property
    def mean_derivative_rmse(self) -> float | None:
        """The mean over derivatives of their RMSE: the "all-delta" figure of published tables."""
        return _mean([metric.rmse for metric in self.derivatives])

    @property
    def mean_scaled_derivative_rmse(self) -> float | None:
        """The mean over derivatives of their scaled RMSE."""
        return _mean([metric.scaled_rmse for metric in self.derivatives])


def measure(
    columns: Columns,
    x: Array,
    y: Array,
    predicted_y: Array,
    dydx: Array | None = None,
    predicted_dydx: Array | None = None,
) -> Metrics:
    """Metrics of predictions.

    Args:
        columns: names.
        x: inputs, [N, D].
        y: true values, [N, K], NaN where unknown.
        predicted_y: [N, K].
        dydx: true derivatives, [N, K, D], NaN where unknown.
        predicted_dydx: [N, K, D].
    """
    spread_y = [spread(column) for column in y.T]
    values = tuple(
        _value_metric(name, y[:, k], predicted_y[:, k]) for k, name in enumerate(columns.outputs)
    )
    if dydx is None or predicted_dydx is None:
        return Metrics(values)
    spread_x = np.array([spread(column) for column in x.T])
    derivatives = tuple(
        _derivative_metric(
            columns.derivative(output, input),
            dydx[:, k, d],
            predicted_dydx[:, k, d],
            spread_x[d],
            spread_y[k],
        )
        for k, output in enumerate(columns.outputs)
        for d, input in enumerate(columns.inputs)
    )
    directions = tuple(
        _direction(name, dydx[:, k] * spread_x, predicted_dydx[:, k] * spread_x)
        for k, name in enumerate(columns.outputs)
    )
    return Metrics(values, derivatives, directions)


def spread(values: Array) -> float:
    """The standard deviation of known values; exactly zero where they differ by rounding only.

    >>> spread(np.array([0.1, 0.1, 0.1])), spread(np.array([1.0, 3.0, np.nan]))
    (0.0, 1.0)
    """
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return 0.0
    deviation = float(np.std(known))
    return deviation if deviation > _ROUNDING * np.abs(known).max() else 0.0


def rmse(truth: Array, predicted: Array) -> float | None:
    """√mean (predicted - truth)² over known rows."""
    known = ~np.isnan(truth)
    if not known.any():
        return None
    return float(np.sqrt(np.mean((predicted[known] - truth[known]) ** 2)))


def r2(truth: Array, predicted: Array) -> float | None:
    """1 - Σ(predicted - truth)² / Σ(truth - mean)² over known rows; None for a constant truth."""
    error, deviation = rmse(truth, predicted), spread(truth)
    if error is None or deviation == 0.0:
        return None
    return 1.0 - (error / deviation) ** 2


def right_sign(truth: Array, predicted: Array) -> float | None:
    """The share of rows with the right sign, among those with a truth known and not zero."""
    known = ~np.isnan(truth)
    if not known.any():
        return None
    signed = known & (np.abs(np.nan_to_num(truth)) > _ZERO * np.abs(truth[known]).max())
    if not signed.any():
        return None
    return float(np.mean(np.sign(predicted[signed]) == np.sign(truth[signed])))


def cosines(truth: Array, predicted: Array) -> Array:
    """Cosines of gradient rows [N, D], known entries only, where the true gradient is not zero."""
    known = ~np.isnan(truth)
    t, p = (_of_size_one(np.where(known, rows, 0.0)) for rows in (truth, predicted))
    lengths_t, lengths_p = np.linalg.norm(t, axis=1), np.linalg.norm(p, axis=1)
    kept = lengths_t > _ZERO * lengths_t.max(initial=0.0)
    t = t[kept] / lengths_t[kept, None]
    p = p[kept] / np.where(lengths_p[kept] > 0.0, lengths_p[kept], 1.0)[:, None]
    return np.clip((t * p).sum(1), -1.0, 1.0)


def _of_size_one(rows: Array) -> Array:
    """Divided by the largest entry: the square of a tiny length would be zero."""
    largest = np.abs(rows).max(initial=0.0)
    return rows / largest if largest > 0.0 else rows


def _value_metric(name: str, truth: Array, predicted: Array) -> Metric:
    error, deviation = rmse(truth, predicted), spread(truth)
    rows = int((~np.isnan(truth)).sum())
    note = _note(rows, deviation)
    scale = 1.0 / deviation if deviation > 0.0 else None
    return Metric(name, rows, error, scale, r2(truth, predicted), note=note)


def _derivative_metric(
    name: str, truth: Array, predicted: Array, spread_x: float, spread_y: float
) -> Metric:
    error, deviation = rmse(truth, predicted), spread(truth)
    rows = int((~np.isnan(truth)).sum())
    scale = spread_x / spread_y if spread_x > 0.0 and spread_y > 0.0 else None
    note = _note(rows, deviation)
    if not note and _hardly_varies(truth, deviation, scale):
        note = "hardly varies: R² says little, the scaled RMSE counts"
    if rows and scale is None:
        why = "its input is constant" if spread_x == 0.0 else "the values do not vary"
        note = "; ".join(filter(None, [note, f"no scaled RMSE: {why} here"]))
    sign = right_sign(truth, predicted)
    return Metric(name, rows, error, scale, r2(truth, predicted), sign, note)


def _note(rows: int, deviation: float) -> str:
    if not rows:
        return "no known truth"
    if rows < 2:
        return "one row: R² has no meaning"
    return "" if deviation > 0.0 else "constant: R² has no meaning"


def _hardly_varies(truth: Array, deviation: float, scale: float | None) -> bool:
    size = float(np.sqrt(np.nanmean(truth**2)))
    return deviation < _HARDLY * size or (scale is not None and deviation * scale < _HARDLY)


def _direction(name: str, truth: Array, predicted: Array) -> Direction:
    found = cosines(truth, predicted)
    if not len(found):
        return Direction(name, 0, None, None)
    return Direction(name, len(found), float(found.mean()), float(np.quantile(found, 0.05)))


def _mean(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return float(np.mean(known)) if known else None
