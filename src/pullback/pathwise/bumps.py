"""Labels with derivatives from any pricer, by central differences.

NOTE [The bump]
A pricer with relative accuracy ε (1e-15 for a closed form, 1e-6 for a finite-difference engine, its
relative standard error for a Monte Carlo with fixed seeds) gives a central difference with

    truncation h²/6 |f⁽³⁾|   and   noise ε |f| / h,

which are least in sum near h = (3 ε |f| / |f⁽³⁾|)^(1/3). If f bends on the scale L of its input
(f⁽³⁾ of the size f / L³) that is about ε^(1/3) L, with a relative error of about ε^(2/3). L is the
standard deviation of the input over the rows, or its size where it does not vary: bumps of 1e-5 L
for a closed form, of 1 % of L for an engine that is good to six digits. A bump that is too small
shows as noise in the derivatives; one that is too large is a bias where f bends.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback.derivatives import gradient_by_differences
from pullback.errors import InputError, ShapeError
from pullback.learning.columns import Columns
from pullback.pathwise.labels import Labels

Array = NDArray[np.float64]


def label_by_bumps(
    price: Callable[..., Any],
    state: Mapping[str, Any] | Any,
    *,
    accuracy: float = 1e-15,
    step: float | Mapping[str, float] | None = None,
    wrt: Sequence[str] | None = None,
    each_row: bool = False,
    outputs: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Labels:
    """Return values of a black box with derivatives by central differences, 2·D + 1 runs of it.

    For pricers that have no adjoint: numpy, QuantLib, a compiled library. h = accuracy^(1/3) times
    the input's scale, see NOTE [The bump]. A pricer that simulates must use the same random numbers
    on every call.

    Args:
        price: given numpy arrays [N] by name, price(**columns), or one array [N, D] if the state
            has no names, it returns [N] or [N, K]. With `each_row` it is given one row, numbers by
            name or an array [D], and returns one number or K numbers.
        state: a mapping of arrays [N], or one array [N, D].
        accuracy: relative accuracy of the pricer, which decides the step.
        step: h itself, for all inputs or by name.
        wrt: names of the inputs to bump; derivatives by the others are NaN, which is unknown.
        each_row: call `price` once a row.
        outputs: K names.
        units: by name of input or output.

    Raises:
        InputError: an accuracy or a step is not positive, an unknown name.
        ShapeError: the state is not [N] by name, or the pricer does not return one row a state.

    >>> def forward(spot, rate):
    ...     return spot * np.exp(rate)
    >>> labels = label_by_bumps(forward, {"spot": [1.0, 2.0, 3.0], "rate": [0.0, 0.1, 0.0]})
    >>> labels.dydx[:, 0, 0].numpy().round(6)
    array([1.      , 1.105171, 1.      ])
    """
    names, x = _matrix(state)
    if not 0 < accuracy < 1:
        raise InputError(f"label_by_bumps: expected an accuracy between 0 and 1, got {accuracy}")
    run = _runner(price, names, each_row)
    y = run(x)
    columns = _columns(names, x.shape[1], y.shape[1], outputs, units)
    dydx = np.full((len(x), y.shape[1], x.shape[1]), np.nan)
    for d, h in _steps(columns.inputs, x, accuracy, step, wrt).items():
        dydx[:, :, d] = _column(run, x, d, h)
    tensors = {"x": x, "y": y, "dydx": dydx}
    return Labels(**{k: torch.from_numpy(v) for k, v in tensors.items()}, columns=columns)  # type: ignore[arg-type]


def _column(run: Callable[[Array], Array], x: Array, d: int, step: float) -> Array:
    """∂y/∂x_d, [N, K]."""

    def along(column: Array) -> Array:
        moved = x.copy()
        moved[:, d] = column[:, 0]
        return run(moved)

    return gradient_by_differences(along, x[:, d : d + 1], step=step)[:, :, 0]


def _matrix(state: Any) -> tuple[tuple[str, ...] | None, Array]:
    if isinstance(state, Mapping):
        parts = [_array(part) for part in state.values()]
        if not parts or len({part.shape for part in parts}) > 1 or parts[0].ndim != 1:
            shapes = {name: list(np.shape(part)) for name, part in state.items()}
            raise ShapeError(f"label_by_bumps: expected a state of arrays [N], got {shapes}")
        return tuple(state), np.stack(parts, axis=1)
    x = _array(state)
    if x.ndim != 2:
        raise ShapeError(f"label_by_bumps: expected a state [N, D], got {list(x.shape)}")
    return None, x


def _array(values: Any) -> Array:
    return np.array(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=float)


def _runner(
    price: Callable[..., Any], names: tuple[str, ...] | None, each_row: bool
) -> Callable[[Array], Array]:
    def call(x: Array) -> Any:
        # x.T has the columns of a batch [N, D], and the numbers of one row [D], in its first axis.
        return price(x) if names is None else price(**dict(zip(names, x.T, strict=True)))

    def run(x: Array) -> Array:
        y = np.asarray([call(row) for row in x] if each_row else call(x), dtype=float)
        if y.ndim not in (1, 2) or len(y) != len(x):
            raise ShapeError(
                f"label_by_bumps: expected the pricer to return [N] or [N, K] with N = {len(x)}, "
                f"got {list(y.shape)}; each_row=True calls it once a row"
            )
        return y.reshape(len(x), -1)

    return run


def _columns(
    names: tuple[str, ...] | None,
    inputs: int,
    count: int,
    outputs: Sequence[str] | None,
    units: Mapping[str, str] | None,
) -> Columns:
    default = Columns.default(inputs, count)
    return Columns(names or default.inputs, tuple(outputs or default.outputs), units or {})


def _steps(
    names: Sequence[str],
    x: Array,
    accuracy: float,
    step: float | Mapping[str, float] | None,
    wrt: Sequence[str] | None,
) -> dict[int, float]:
    """H by column, for those that are bumped."""
    given = dict.fromkeys(names, step) if isinstance(step, int | float) else dict(step or {})
    unknown = [name for name in (*given, *(wrt or ())) if name not in names]
    if unknown:
        raise InputError(f"label_by_bumps: expected names among {list(names)}, got {unknown[0]!r}")
    steps = {}
    for d, name in enumerate(names):
        if wrt is None or name in wrt:
            h = given.get(name)
            steps[d] = accuracy ** (1 / 3) * _scale(x[:, d]) if h is None else float(h)
            if not steps[d] > 0:
                raise InputError(f"label_by_bumps: expected a positive step for {name}, got {h}")
    return steps


def _scale(column: Array) -> float:
    """See NOTE [The bump]."""
    deviation, size = float(column.std()), float(np.abs(column).max())
    return deviation if deviation > 1e-9 * size else size or 1.0
