"""One object a user handed in, read as an array of real numbers and the names of its columns."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pullback._extras import require
from pullback.errors import DtypeError, InputError, ShapeError

Array = NDArray[Any]


class Given(NamedTuple):
    """What was read: real numbers (NaN = null or None), and column names where there are any."""

    values: Array
    names: tuple[str, ...] | None


def read(api: str, what: str, given: object) -> Given:
    """Read numpy, torch, nested lists, pandas, polars or pyarrow into real numbers.

    Integers and bools stay what they are, half precision becomes float32 and long double float64,
    a masked entry, a null and None become NaN. The values may share memory with what was given.

    Raises:
        InputError: sparse or complex data.
        DtypeError: an entry that is not a number, such as a string or a date.
        ShapeError: nested lists of unequal length.
        MissingExtraError: a frame or series without narwhals installed.
    """
    if hasattr(given, "toarray") or (
        isinstance(given, torch.Tensor) and given.layout != torch.strided
    ):
        raise InputError(
            f"{api}: {what} is sparse; sparse input is not supported: pass a dense array, "
            f"such as {what}.toarray() of scipy or {what}.to_dense() of torch"
        )
    if isinstance(given, torch.Tensor):
        # numpy has no bfloat16 and no 8-bit floats; float32 holds all of them exactly.
        narrow = given.is_floating_point() and given.element_size() < 4
        values = (given.detach().float() if narrow else given).numpy(force=True)
        return Given(_numbers(api, what, values), None)
    framed = None if isinstance(given, (np.ndarray, list, tuple)) else _narwhals(api, what, given)
    if framed is None:
        return Given(_numbers(api, what, _rectangle(api, what, given)), None)
    if not hasattr(framed, "columns"):
        names = (framed.name,) if isinstance(framed.name, str) else None
        return Given(_numbers(api, what, framed.to_numpy()), names)
    columns = [
        _numbers(api, what, framed[:, j].to_numpy(), column=name)
        for j, name in enumerate(framed.columns)
    ]
    stacked = np.column_stack(columns) if columns else np.empty((len(framed), 0))
    named = bool(columns) and all(isinstance(name, str) for name in framed.columns)
    return Given(stacked, tuple(framed.columns) if named else None)


def is_frame(api: str, what: str, given: object) -> bool:
    """Whether `given` is a table with columns; nothing is imported for what is not."""
    return hasattr(type(given), "columns") and hasattr(_narwhals(api, what, given), "columns")


def _narwhals(api: str, what: str, given: object) -> Any:
    """A narwhals frame or series; None for what is neither."""
    protocols = ("to_numpy", "__dataframe__", "__arrow_c_stream__")
    if not any(hasattr(type(given), name) for name in protocols):
        return None
    kind = f"{type(given).__module__.partition('.')[0]} {type(given).__name__}"
    narwhals = require("narwhals", extra="frames", purpose=f"{api}: reading {what} from a {kind}")
    try:
        wrapped = narwhals.from_native(given, eager_only=True, allow_series=True, pass_through=True)
    except Exception as error:  # of many kinds, by library: columns of one name, above all
        raise InputError(f"{api}: {what} cannot be read from a {kind}: {error}") from error
    return None if wrapped is given else wrapped


def _rectangle(api: str, what: str, given: object) -> Array:
    if isinstance(given, np.ma.MaskedArray):
        # asarray would drop the mask, and what was masked would count as known.
        return np.ma.filled(given.astype(np.result_type(given.dtype, np.float32)), np.nan)
    try:
        values = np.asarray(given)
        # A list with one string in it becomes all strings; only objects still tell which one.
        if values.dtype.kind in "US":
            values = np.asarray(given, object)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ShapeError(
            f"{api}: {what} must form a rectangular array of numbers, got "
            f"{type(given).__name__}: {error}"
        ) from error
    if values.ndim == 0 and values.dtype.kind == "O":
        way = ": call its collect() first" if hasattr(given, "collect") else ""
        raise ShapeError(
            f"{api}: {what} must be an array, a tensor, nested lists or a frame, got "
            f"{type(given).__name__}{way}"
        )
    return values


def _numbers(api: str, what: str, values: Array, *, column: object = None) -> Array:
    kind = values.dtype.kind
    if kind == "f":
        return values.astype(np.float32 if values.itemsize <= 4 else np.float64, copy=False)
    if kind in "biu":
        return values
    if kind == "c":
        raise InputError(
            f"{api}: Complex data not supported: {what} has dtype {values.dtype}; pass real and "
            "imaginary parts as separate columns"
        )
    if kind not in "OUS":
        raise DtypeError(f"{api}: {what} must hold real numbers, got dtype {values.dtype}")
    numbers = np.empty(values.shape)
    for index, cell in np.ndenumerate(values.astype(object)):
        numbers[index] = _number(api, what, cell, index, column)
    return numbers


def _number(api: str, what: str, cell: object, index: tuple[int, ...], column: object) -> float:
    if cell is None or type(cell).__name__ == "NAType":  # pandas.NA, without importing pandas
        return np.nan
    reason = "text is never parsed: convert it first"
    if not isinstance(cell, (str, bytes)):
        try:
            return float(cell)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError) as error:
            reason = str(error)
    where = [*index, *([] if column is None else [column])]
    raise DtypeError(
        f"{api}: {what} must hold real numbers, {cell_name(where)} holds {cell!r}: {reason}"
    )


def cell_name(index: list[Any], names: tuple[str, ...] | None = None) -> str:
    """Words for one entry: rows count from 0, the last axis by name where it has one.

    >>> cell_name([3, 1], ("spot", "vol"))
    "row 3, column 'vol'"
    >>> cell_name([3, 0, 1])
    'row 3, output 0, column 1'
    """
    words = {1: ["row"], 2: ["row", "column"], 3: ["row", "output", "column"]}
    axes = words.get(len(index), [f"axis {axis}" for axis in range(len(index))])
    last = index[-1]
    if len(index) > 1 and names is not None and isinstance(last, int):
        last = names[last]
    shown = [*index[:-1], repr(last) if isinstance(last, str) else last]
    return ", ".join(f"{axis} {value}" for axis, value in zip(axes, shown, strict=True))


def require_finite(
    api: str, what: str, values: Array, names: tuple[str, ...] | None, *, unknown: bool
) -> None:
    """Refuse infinities, and NaN too unless NaN stands for `unknown`.

    Raises:
        InputError: names the first entry at fault and how many there are.
    """
    fault = np.isinf(values) if unknown else ~np.isfinite(values)
    if not fault.any():
        return
    index = [int(i) for i in np.argwhere(fault)[0]]
    value = values[tuple(index)]
    rule = "may hold NaN (unknown) but no infinity" if unknown else "must be finite"
    shown = "NaN" if np.isnan(value) else f"{value:f}"
    raise InputError(
        f"{api}: {what} {rule}, {cell_name(index, names)} is {shown} "
        f"({int(fault.sum())} such entries)"
    )


def common_dtype(*columns: Given | None) -> np.dtype[Any]:
    """float32 if there are floats and none is wider than that, else float64.

    >>> common_dtype(Given(np.ones(2, np.float32), None), Given(np.ones(2, int), None))
    dtype('float32')
    """
    floats = [c.values for c in columns if c is not None and c.values.dtype.kind == "f"]
    single = bool(floats) and all(values.itemsize <= 4 for values in floats)
    return np.dtype(np.float32 if single else np.float64)
