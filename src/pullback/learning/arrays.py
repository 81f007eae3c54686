"""The boundary between what users hand in and what estimators compute with.

Everything comes in once, is checked once and is from then on a numpy array of one dtype:
x [N, D], y [N, K], dydx [N, K, D]. NaN in y or dydx is an unknown label, at the level of single
entries; x must be known.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.errors import InputError, ShapeError
from pullback.learning._differentials import read_differentials
from pullback.learning._given import Array, Given, common_dtype, read, require_finite


@dataclass(frozen=True, eq=False)
class Labels:
    """Inputs with value and derivative labels: numpy arrays of one dtype, C-ordered.

    They may share memory with what was handed in: never write into them.

    Attributes:
        x: inputs, [N, D], finite.
        y: values, [N, K], NaN = unknown.
        dydx: derivatives, [N, K, D], NaN = unknown; None where none were given.
        sample_weight: of the rows, [N], at least zero and not all zero; None where none were given.
        dydx_weight: of the derivatives, three axes that broadcast to [N, K, D]; None likewise.
        single_output: y came as [N]; the user gets [N] and [N, D] back.
        input_names: of a frame's columns.
        output_names: of a frame's columns or a series.
        dtype: float32 if all floats among X, y and dydx were at most that wide, else float64.
    """

    x: Array
    y: Array
    dydx: Array | None
    sample_weight: Array | None
    dydx_weight: Array | None
    single_output: bool
    input_names: tuple[str, ...] | None
    output_names: tuple[str, ...] | None
    dtype: np.dtype[Any]


def as_labels(
    api: str,
    X: object,
    y: object,
    dydx: object = None,
    *,
    sample_weight: object = None,
    dydx_weight: object = None,
    estimator: Any = None,
) -> Labels:
    """Read and check everything that a `fit` is given.

    Numpy, torch (any device, detached), nested lists, and pandas, polars and pyarrow by way of
    narwhals. y is [N] or [N, K]; None, where dydx is given, leaves every value unknown. dydx is
    [N, D] for one output, [N, K, D], a frame, or a mapping to columns [N]; the keys of the last
    two are names of inputs (one output), `dy/dx` with the names of output and input, or, in a
    mapping, pairs (output, input), and what is not named is unknown. Names that nobody gave are
    x0, x1, … and y (one output) or y0, y1, ….

    Args:
        api: the call, for errors, such as "DifferentialRegressor.fit".
        X: inputs, [N, D].
        y: values, [N] or [N, K].
        dydx: derivatives.
        sample_weight: [N], at least zero.
        dydx_weight: at least zero; [N, D] for one output, or what broadcasts to [N, K, D].
        estimator: a scikit-learn estimator, whose n_features_in_ and feature_names_in_ are set.

    Raises:
        ShapeError: a shape does not fit; it names the axes and recognises transposes.
        DtypeError: an entry that is not a real number.
        InputError: NaN or infinity in X, infinity in a label, no known label, an unknown name.
        MissingExtraError: a frame without narwhals installed.

    >>> labels = as_labels("fit", [[0.0, 1.0], [2.0, 3.0]], [0.5, None], {"x1": [7.0, 8.0]})
    >>> labels.y.tolist(), labels.dydx.tolist()
    ([[0.5], [nan]], [[[nan, 7.0]], [[nan, 8.0]]])
    """
    x = _read_inputs(api, X)
    rows, width = x.values.shape
    outputs = _read_values(api, y, dydx, rows)
    shape = (rows, outputs.values.reshape(rows, -1).shape[1], width)
    slopes = None if dydx is None else read_differentials(api, dydx, shape, x.names, outputs.names)
    if slopes is not None:
        require_finite(api, "dydx", slopes.values, x.names, unknown=True)
    if np.isnan(outputs.values).all() and (slopes is None or np.isnan(slopes.values).all()):
        raise InputError(f"{api}: every label is NaN (unknown): there is nothing to learn from")
    if estimator is not None:
        _record_features(estimator, X, x, reset=True)
    dtype = common_dtype(x, outputs if y is not None else None, slopes)
    return Labels(
        x=_plain(x.values, dtype),
        y=_plain(outputs.values.reshape(shape[:2]), dtype),
        dydx=None if slopes is None else _plain(slopes.values, dtype),
        sample_weight=_row_weight(api, sample_weight, rows, dtype),
        dydx_weight=_slope_weight(api, dydx_weight, shape, dtype),
        single_output=outputs.values.ndim == 1,
        input_names=x.names,
        output_names=outputs.names,
        dtype=dtype,
    )


def as_inputs(
    api: str,
    X: object,
    *,
    n_features: int,
    input_names: tuple[str, ...] | None = None,
    estimator: Any = None,
) -> Array:
    """Read and check the inputs that a fitted model is asked about, [N, D].

    Args:
        api: the call, for errors, such as "DifferentialRegressor.predict".
        X: inputs, [N, D].
        n_features: D that the model was fitted with.
        input_names: names that the model was fitted with.
        estimator: a scikit-learn estimator, which then checks count and names itself.

    Raises:
        ShapeError: not [N, D], or another D.
        InputError: NaN or infinity, or columns named or ordered in another way.

    >>> as_inputs("predict", [[1, 2]], n_features=2)
    array([[1., 2.]])
    """
    x = _read_inputs(api, X)
    if estimator is not None:
        _record_features(estimator, X, x, reset=False)
    else:
        _check_names(api, x.names, input_names)
        if x.values.shape[1] != n_features:
            raise ShapeError(f"{api}: expected X of shape [N, {n_features}], got {x.values.shape}")
    return _plain(x.values, common_dtype(x))


def like_input(array: Array, X: object) -> Any:
    """A result as the kind that came in: a tensor on X's device for a tensor, else numpy.

    A floating X gives its dtype too.

    >>> like_input(np.array([1.0]), torch.zeros(1, 2))
    tensor([1.])
    """
    if not isinstance(X, torch.Tensor):
        return array
    dtype = X.dtype if X.is_floating_point() else None
    return torch.as_tensor(array, dtype=dtype, device=X.device)


def _read_inputs(api: str, X: object) -> Given:
    x = read(api, "X", X)
    if x.values.ndim != 2:
        raise ShapeError(
            f"{api}: expected X of shape [N, D], got {x.values.shape}. Reshape your data: "
            "X.reshape(-1, 1) if there is one input, X.reshape(1, -1) if there is one row"
        )
    for count, name in zip(x.values.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ShapeError(
                f"{api}: Found array with 0 {name}(s) (shape={x.values.shape}) while a minimum of "
                "1 is required."
            )
    require_finite(api, "X", x.values, x.names, unknown=False)
    return x


def _read_values(api: str, y: object, dydx: object, rows: int) -> Given:
    if y is None and dydx is None:
        raise InputError(f"{api} requires y to be passed, but the target y is None")
    if y is None:
        shape: tuple[int, ...] = getattr(dydx, "shape", ())
        if isinstance(dydx, (list, tuple)):
            shape = np.shape(dydx)
        return Given(np.full((rows, shape[1]) if len(shape) == 3 else rows, np.nan), None)
    values = read(api, "y", y)
    shape = values.values.shape
    if len(shape) not in (1, 2) or shape[0] != rows or 0 in shape:
        hint = ": pass y.T" if len(shape) == 2 and shape[1] == rows else ""
        raise ShapeError(
            f"{api}: expected y of shape [N] or [N, K] with N={rows} rows as in X, got {shape}"
            f"{hint}"
        )
    require_finite(api, "y", values.values, values.names, unknown=True)
    return values


def _row_weight(api: str, given: object, rows: int, dtype: np.dtype[Any]) -> Array | None:
    if given is None:
        return None
    weight = read(api, "sample_weight", given).values
    if weight.shape != (rows,):
        raise ShapeError(
            f"{api}: expected sample_weight of shape [N] = ({rows},), got {weight.shape}"
        )
    return _weight(api, "sample_weight", weight, dtype)


def _slope_weight(
    api: str, given: object, shape: tuple[int, int, int], dtype: np.dtype[Any]
) -> Array | None:
    if given is None:
        return None
    weight = read(api, "dydx_weight", given).values
    if shape[1] == 1 and weight.shape == (shape[0], shape[2]):
        weight = weight[:, None, :]
    weight = weight.reshape((1,) * (3 - weight.ndim) + weight.shape)
    if weight.ndim != 3 or any(w not in (1, n) for w, n in zip(weight.shape, shape, strict=True)):
        raise ShapeError(
            f"{api}: expected dydx_weight that broadcasts to [N, K, D] = {shape}, got "
            f"{np.shape(weight)}: [D] for inputs, [K, 1] for outputs, [N, 1, 1] for rows"
        )
    return _weight(api, "dydx_weight", weight, dtype)


def _weight(api: str, what: str, weight: Array, dtype: np.dtype[Any]) -> Array:
    require_finite(api, what, weight, None, unknown=False)
    if (weight < 0).any():
        raise InputError(f"{api}: {what} must not be negative, got {weight.min()}")
    if not weight.any():
        raise InputError(f"{api}: every {what} is zero, at least one weight must not be")
    return _plain(weight, dtype)


def _plain(values: Array, dtype: np.dtype[Any]) -> Array:
    # Writable because torch.from_numpy warns of anything else; a read-only memory map is copied.
    return np.require(values, dtype, ["C", "W"])


def _record_features(estimator: Any, X: object, x: Given, *, reset: bool) -> None:
    """Let scikit-learn set, or compare with, n_features_in_ and feature_names_in_."""
    from sklearn.utils.validation import validate_data

    named = X if x.names is not None else x.values
    validate_data(estimator, X=named, reset=reset, skip_check_array=True)


def _check_names(api: str, names: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    if names is None or fitted is None:
        if names is not fitted:
            came, was = ("with", "without") if fitted is None else ("without", "with")
            warnings.warn(
                f"{api}: X came {came} column names, the model was fitted {was} them: "
                "columns are taken in their order",
                stacklevel=3,
            )
        return
    if names != fitted:
        reason = "in another order" if sorted(names) == sorted(fitted) else "under other names"
        raise InputError(
            f"{api}: expected X with the columns of the fit, {list(fitted)}, got them {reason}: "
            f"{list(names)}"
        )
