"""A model held against rows with known answers: one record, from which every report is made."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from platform import python_version
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from pullback import __version__
from pullback.errors import ShapeError
from pullback.learning.columns import Columns
from pullback.reports.metrics import Metric, Metrics, measure

Array = NDArray[np.float64]


class Model(Protocol):
    """What is asked of a model: that of a fitted `DifferentialRegressor`."""

    columns_: Columns
    domain_: Any
    history_: Any

    def predict(self, X: Any, return_gradient: bool = False) -> Any:
        """Values [N] or [N, K], and derivatives [N, D] or [N, K, D]."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name."""


@dataclass(frozen=True)
class Training:
    """How a model came about.

    Attributes:
        optimizer: the one chosen.
        seconds: wall time.
        events: sentences, in order.
        epochs: the recorded ones.
        train: loss by term at each recorded epoch.
        validation: the same on held-out rows; may be empty.
        parameters: hyper-parameters as text, without those left to the program (None).
        versions: of the software at work now.
    """

    optimizer: str
    seconds: float
    events: tuple[str, ...]
    epochs: tuple[int, ...]
    train: Mapping[str, tuple[float, ...]]
    validation: Mapping[str, tuple[float, ...]]
    parameters: Mapping[str, str]
    versions: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Truths and predictions of N rows with what follows from them.

    Attributes:
        name: of the model, as a legend shows it.
        columns: names and units.
        x: inputs, [N, D].
        y: true values, [N, K], NaN where unknown.
        dydx: true derivatives, [N, K, D], NaN where unknown; None where there are none.
        predicted_y: [N, K].
        predicted_dydx: [N, K, D]; None where there is no truth to hold it against.
        distance: from the centre of the training rows, in standard deviations, [N].
        outside: rows outside the training domain, [N].
        lower: smallest trained value of each input, [D].
        upper: largest trained value of each input, [D].
        metrics: of all rows.
        training: how the model came about.
    """

    name: str
    columns: Columns
    x: Array
    y: Array
    dydx: Array | None
    predicted_y: Array
    predicted_dydx: Array | None
    distance: Array
    outside: NDArray[np.bool_]
    lower: Array
    upper: Array
    metrics: Metrics
    training: Training

    def __len__(self) -> int:
        return len(self.x)

    def metrics_of(self, rows: NDArray[np.bool_]) -> Metrics:
        """Metrics of some of the rows, such as those outside the domain."""
        if self.dydx is None or self.predicted_dydx is None:
            return measure(self.columns, self.x[rows], self.y[rows], self.predicted_y[rows])
        return measure(
            self.columns,
            self.x[rows],
            self.y[rows],
            self.predicted_y[rows],
            self.dydx[rows],
            self.predicted_dydx[rows],
        )

    def quantity(self, output: int, input: int | None = None) -> tuple[Array, Array]:
        """Truth and prediction of output k, or of its derivative in input d, [N] each."""
        if input is None:
            return self.y[:, output], self.predicted_y[:, output]
        dydx, predicted = self._derivatives()
        return dydx[:, output, input], predicted[:, output, input]

    def scaled_errors(self, *, derivatives: bool) -> Array:
        """Scaled error of each row, [N]: root mean square over outputs, or over derivatives.

        NaN where nothing is known of a row. The mean square over rows is that of `metrics`.
        """
        if derivatives:
            dydx, predicted = self._derivatives()
            errors, metrics = (predicted - dydx).reshape(len(self), -1), self.metrics.derivatives
        else:
            errors, metrics = self.predicted_y - self.y, self.metrics.values
        # A quantity without a scale is left out, as an unknown truth is.
        scales = np.array([np.nan if metric.scale is None else metric.scale for metric in metrics])
        squares = (errors * scales) ** 2
        counts = (~np.isnan(squares)).sum(1)
        means = np.nansum(squares, axis=1) / np.maximum(counts, 1)
        return np.where(counts > 0, np.sqrt(means), np.nan)

    def _derivatives(self) -> tuple[Array, Array]:
        assert self.dydx is not None, "asked for derivatives that the rows do not have"
        assert self.predicted_dydx is not None, "predicted wherever there is a truth"
        return self.dydx, self.predicted_dydx

    def to_json(self) -> dict[str, Any]:
        """Names, metrics and training as plain numbers, lists and text; rows are left out."""
        return {
            "name": self.name,
            "columns": self.columns.to_json(),
            "rows": len(self),
            "rows_outside_domain": int(self.outside.sum()),
            "metrics": {
                "values": [_metric_json(metric) for metric in self.metrics.values],
                "derivatives": [_metric_json(metric) for metric in self.metrics.derivatives],
                "directions": [asdict(direction) for direction in self.metrics.directions],
            },
            "training": asdict(self.training),
        }


def evaluate(
    model: Model, X: ArrayLike, y: ArrayLike, dydx: ArrayLike | None = None, *, name: str = "model"
) -> Evaluation:
    """Predict rows and compare with what is known of them.

    Args:
        model: a fitted `DifferentialRegressor`, or what looks like one.
        X: inputs, [N, D].
        y: true values, [N] or [N, K]; NaN where unknown.
        dydx: true derivatives, [N, D] or [N, K, D]; NaN where unknown.
        name: of the model, as a legend shows it.

    Raises:
        ShapeError: the shapes do not fit each other or the model.
    """
    columns = model.columns_
    inputs, outputs = len(columns.inputs), len(columns.outputs)
    x = np.asarray(X, float)
    if x.ndim != 2 or x.shape[1] != inputs:
        raise ShapeError(f"evaluate: expected X of shape [N, {inputs}], got {x.shape}")
    true_y = _shaped("y", y, (len(x), outputs))
    if dydx is None:
        true_dydx = predicted_dydx = None
        predicted_y = _shaped("y_hat", model.predict(x), (len(x), outputs))
    else:
        true_dydx = _shaped("dydx", dydx, (len(x), outputs, inputs))
        values, gradients = model.predict(x, return_gradient=True)
        predicted_y = _shaped("y_hat", values, (len(x), outputs))
        predicted_dydx = _shaped("dydx_hat", gradients, (len(x), outputs, inputs))
    domain = model.domain_
    return Evaluation(
        name=name,
        columns=columns,
        x=x,
        y=true_y,
        dydx=true_dydx,
        predicted_y=predicted_y,
        predicted_dydx=predicted_dydx,
        distance=np.asarray(domain.distance(x), float),
        outside=np.asarray(domain.outside(x), bool),
        lower=np.asarray(domain.lower, float),
        upper=np.asarray(domain.upper, float),
        metrics=measure(columns, x, true_y, predicted_y, true_dydx, predicted_dydx),
        training=_training(model),
    )


def _shaped(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """As `shape`, where the axis of a single output may be missing."""
    array = np.asarray(values, float)
    short = (shape[0], *shape[2:])
    if array.shape == shape or (shape[1] == 1 and array.shape == short):
        return array.reshape(shape)
    either = f" or {short}" if shape[1] == 1 else ""
    raise ShapeError(f"evaluate: expected {name} of shape {shape}{either}, got {array.shape}")


def _training(model: Model) -> Training:
    history = model.history_
    return Training(
        optimizer=history.optimizer,
        seconds=float(history.seconds),
        events=tuple(history.events),
        epochs=tuple(history.epochs),
        train={term: tuple(losses) for term, losses in history.train.items()},
        validation={term: tuple(losses) for term, losses in history.validation.items()},
        parameters={
            key: _plain(value)
            for key, value in model.get_params(deep=False).items()
            if value is not None
        },
        versions={
            "pullback": __version__,
            "torch": torch.__version__.partition("+")[0],
            "numpy": np.__version__,
            "Python": python_version(),
        },
    )


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {**asdict(metric), "scaled_rmse": metric.scaled_rmse}


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
