"""The forms in which derivative labels are handed in, brought to one array [N, K, D]."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np

from pullback.errors import InputError, ShapeError
from pullback.learning._given import Array, Given, is_frame, read

Names = tuple[str, ...] | None


def read_differentials(
    api: str, dydx: object, shape: tuple[int, int, int], inputs: Names, outputs: Names
) -> Given:
    """Derivative labels as [N, K, D], NaN = unknown.

    Args:
        api: the call, for errors.
        dydx: [N, D] (one output), [N, K, D], a frame, or a mapping to columns [N].
        shape: (N, K, D), what is expected.
        inputs: names of the inputs; x0, x1, … where None.
        outputs: names of the outputs; y (one output) or y0, y1, … where None.

    Raises:
        ShapeError: another shape; a transpose of the expected one is recognised.
        InputError: a column named like no input and no `dy/dx`.
    """
    if isinstance(dydx, Mapping):
        columns = dict(dydx)
    elif is_frame(api, "dydx", dydx):
        read_frame = read(api, "dydx", dydx)
        if read_frame.names is None:
            return Given(_fit_shape(api, read_frame.values, shape), None)
        columns = dict(zip(read_frame.names, read_frame.values.T, strict=True))
    else:
        return Given(_fit_shape(api, read(api, "dydx", dydx).values, shape), None)
    return Given(_place(api, columns, shape, _slots(shape, inputs, outputs)), None)


def _slots(
    shape: tuple[int, int, int], inputs: Names, outputs: Names
) -> dict[Any, tuple[int, int]]:
    """Every key that a column may have, to its (output, input)."""
    _, k_count, d_count = shape
    inputs = inputs or tuple(f"x{d}" for d in range(d_count))
    spare = ("y",) if k_count == 1 else tuple(f"y{k}" for k in range(k_count))
    slots: dict[Any, tuple[int, int]] = {}
    for d, name in enumerate(inputs):
        if k_count == 1:
            slots[name] = (0, d)
        for group in (outputs or (), spare):
            for k, output in enumerate(group):
                slots.setdefault((output, name), (k, d))
                slots.setdefault(f"d{output}/d{name}", (k, d))
    return slots


def _place(
    api: str,
    columns: Mapping[Any, object],
    shape: tuple[int, int, int],
    slots: dict[Any, tuple[int, int]],
) -> Array:
    read_columns = {
        key: read(api, f"dydx[{key!r}]", column).values for key, column in columns.items()
    }
    dtype = np.result_type(np.float32, *(c.dtype for c in read_columns.values()))
    placed = np.full(shape, np.nan, dtype)
    taken: dict[tuple[int, int], object] = {}
    for key, column in read_columns.items():
        slot = slots.get(key)
        if slot is None:
            raise InputError(f"{api}: dydx names {key!r}, expected one of {_few(list(slots))}")
        if slot in taken:
            raise InputError(f"{api}: dydx names one derivative twice, {taken[slot]!r} and {key!r}")
        if column.shape != (shape[0],):
            raise ShapeError(
                f"{api}: expected dydx[{key!r}] of shape [N] = ({shape[0]},), one value for each "
                f"row of X, got {column.shape}{_rows_hint(column.shape, shape)}"
            )
        taken[slot] = key
        placed[:, slot[0], slot[1]] = column
    return placed


def _few(keys: list[Any]) -> str:
    shown = ", ".join(map(repr, keys[:8]))
    return shown if len(keys) <= 8 else f"{shown}, … ({len(keys)} in all)"


def _fit_shape(api: str, values: Array, shape: tuple[int, int, int]) -> Array:
    rows, outputs, inputs = shape
    if values.shape == shape:
        return values
    if outputs == 1 and values.shape == (rows, inputs):
        return values[:, None, :]
    sizes = f"N={rows} rows, K={outputs} outputs and D={inputs} inputs"
    form = "[N, D] or [N, 1, D]" if outputs == 1 else "[N, K, D]"
    hint = (
        _transpose_hint(values.shape, shape)
        or _flat_hint(values.shape, shape)
        or _output_hint(values.shape, shape)
        or _rows_hint(values.shape, shape)
    )
    raise ShapeError(f"{api}: expected dydx of shape {form} with {sizes}, got {values.shape}{hint}")


def _transpose_hint(got: tuple[int, ...], shape: tuple[int, int, int]) -> str:
    rows, outputs, inputs = shape
    expected = [(rows, inputs)] if outputs == 1 else []
    for target in [*expected, shape]:
        letters = "ND" if len(target) == 2 else "NKD"
        for order in permutations(range(len(target))):
            if len(got) == len(target) and tuple(got[axis] for axis in order) == target:
                came = ", ".join(letters[order.index(axis)] for axis in range(len(got)))
                way = "dydx.T" if len(target) == 2 else f"np.transpose(dydx, {order})"
                return f": that looks like [{came}]; pass {way}"
    return ""


def _flat_hint(got: tuple[int, ...], shape: tuple[int, int, int]) -> str:
    rows, outputs, inputs = shape
    if got == (rows,) and inputs == outputs == 1:
        return ": pass dydx.reshape(-1, 1)"
    if outputs > 1 and got == (rows, outputs * inputs):
        return f": pass dydx.reshape({rows}, {outputs}, {inputs}) if inputs vary fastest"
    if outputs > 1 and got == (rows, inputs):
        return f": y has {outputs} outputs, and these are derivatives of one of them"
    return ""


def _output_hint(got: tuple[int, ...], shape: tuple[int, int, int]) -> str:
    rows, outputs, inputs = shape
    if len(got) != 3 or (got[0], got[2]) != (rows, inputs) or got[1] == outputs:
        return ""
    return (
        f": y has {outputs} and dydx {got[1]} outputs; a wrapper that slices y, such as "
        "MultiOutputRegressor, passes dydx whole: fit this estimator itself, it takes several "
        "outputs"
    )


def _rows_hint(got: tuple[int, ...], shape: tuple[int, int, int]) -> str:
    if not got or got[0] == shape[0]:
        return ""
    return (
        f": X has {shape[0]} rows and dydx {got[0]}; a wrapper that slices X must slice dydx "
        "with it: request it by metadata routing, set_fit_request(dydx=True), or fit without the "
        "wrapper"
    )
