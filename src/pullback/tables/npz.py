"""numpy's npz: arrays x [N, D], y [N] or [N, K], dydx [N, D] or [N, K, D], or one array a column.

Text arrays `inputs` and `outputs` may name the columns. Any other array of numbers [N, …] is there
under its own name. Members are read in blocks of rows, never as pickles.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pullback.errors import InputError, TableError
from pullback.learning.columns import Columns
from pullback.tables.source import Block, Roles, Source

_TEXTS = ("inputs", "outputs", "units")


@dataclass(frozen=True)
class _Array:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def width(self) -> int:
        return prod(self.shape[1:])


class NpzSource(Source):
    """An npz file."""

    def __init__(self, path: Path) -> None:
        self._arrays = _headers(path)
        columns = _columns(path, self._arrays)
        self._where: dict[str, tuple[str, int]] = {}
        groups = {}
        for key, array in self._arrays.items():
            groups[key] = _names(key, array, columns)
            self._where.update({name: (key, i) for i, name in enumerate(groups[key])})
        names = [name for group in groups.values() for name in group]
        super().__init__(path, names, groups, _roles(groups, columns))

    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Block]:
        """See `Source.blocks`."""
        keys = list(dict.fromkeys(self._where[name][0] for name in names))
        total = self._rows(keys)
        with _readable(self.path), zipfile.ZipFile(self.path) as archive, ExitStack() as stack:
            readers = {key: _reader(archive, key, self._arrays[key], stack) for key in keys}
            for start in range(0, total, rows):
                count = min(rows, total - start)
                parts = {key: next_rows(count) for key, next_rows in readers.items()}
                picked = [parts[key][:, i] for key, i in map(self._where.__getitem__, names)]
                yield np.stack(picked, axis=1).astype(np.float64, copy=False)

    def _rows(self, keys: Sequence[str]) -> int:
        lengths = {key: self._arrays[key].shape[0] for key in keys}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise TableError(f"{self.path}: expected arrays of equally many rows, got {found}")
        return next(iter(lengths.values()))


class _Rows:
    """Successive rows of one member, flattened to [n, width]."""

    def __init__(self, stream: IO[bytes], array: _Array) -> None:
        self._stream, self._array = stream, array

    def __call__(self, count: int) -> NDArray[np.generic]:
        need = count * self._array.width * self._array.dtype.itemsize
        pieces = []
        while need and (piece := self._stream.read(need)):
            pieces.append(piece)
            need -= len(piece)
        if need:
            raise EOFError("an array ends before its last row")
        flat = np.frombuffer(b"".join(pieces), dtype=self._array.dtype)
        return flat.reshape(count, self._array.width)


class _Loaded:
    """Successive rows of an array that does not lie row by row, and so is read whole."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._values, self._start = values.reshape(len(values), -1), 0

    def __call__(self, count: int) -> NDArray[np.generic]:
        self._start += count
        return self._values[self._start - count : self._start]


def _reader(
    archive: zipfile.ZipFile, key: str, array: _Array, stack: ExitStack
) -> "_Rows | _Loaded":
    stream = stack.enter_context(archive.open(f"{key}.npy"))
    if array.fortran and len(array.shape) > 1:
        return _Loaded(npy.read_array(stream, allow_pickle=False))
    _header(stream)
    return _Rows(stream, array)


def _headers(path: Path) -> dict[str, _Array]:
    """Name, shape and type of every array of numbers."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        found = {}
        for member in archive.namelist():
            with archive.open(member) as stream:
                array = _header(stream)
            key = member.removesuffix(".npy")
            if array.dtype.hasobject:
                raise TableError(
                    f"{path}: array {key!r} holds Python objects, which are never unpickled; save "
                    "it as numbers"
                )
            if key not in _TEXTS and array.shape:
                found[key] = array
    if not found:
        raise TableError(f"{path}: there is no array in it")
    for key, array in found.items():
        if array.dtype.kind not in "biuf":
            raise TableError(f"{path}: array {key!r}: expected numbers, got {array.dtype}")
    return found


def _header(stream: IO[bytes]) -> _Array:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return _Array(*read(stream))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    damaged = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError)
    try:
        yield
    except TableError:
        raise
    except damaged as error:
        raise TableError(f"{path}: the file is damaged or truncated: {error}") from error


def _columns(path: Path, arrays: dict[str, _Array]) -> Columns | None:
    """Names of x, and of y where it is there, as the file gives them, or the default ones."""
    if "x" not in arrays:
        return None
    default = Columns.default(arrays["x"].width, arrays["y"].width if "y" in arrays else 0)
    with _readable(path), np.load(path, allow_pickle=False) as file:
        texts = {key: file[key] for key in _TEXTS if key in file.files}
        units = json.loads(str(texts["units"])) if "units" in texts else {}
    inputs = tuple(map(str, texts.get("inputs", default.inputs)))
    outputs = tuple(map(str, texts.get("outputs", default.outputs))) if "y" in arrays else ()
    if (len(inputs), len(outputs)) != (len(default.inputs), len(default.outputs)):
        raise TableError(
            f"{path}: expected {len(default.inputs)} names in inputs and {len(default.outputs)} in "
            f"outputs, as many as x and y have columns; got {len(inputs)} and {len(outputs)}"
        )
    try:
        held = {name: unit for name, unit in units.items() if name in (*inputs, *outputs)}
        return Columns(inputs, outputs, held)
    except InputError as error:
        raise TableError(f"{path}: {error}") from error


def _names(key: str, array: _Array, columns: Columns | None) -> tuple[str, ...]:
    if columns is not None:
        known = {"x": columns.inputs, "y": columns.outputs, "dydx": columns.derivatives}
        if len(known.get(key, ())) == array.width:
            return known[key]
    if len(array.shape) == 1:
        return (key,)
    return tuple(f"{key}{i}" for i in range(array.width))


def _roles(groups: dict[str, tuple[str, ...]], columns: Columns | None) -> Roles:
    if columns is None:
        return Roles()
    pairs = [(o, i) for o in columns.outputs for i in columns.inputs]
    dydx = dict(zip(pairs, columns.derivatives, strict=True))
    held = groups.get("dydx") == columns.derivatives
    return Roles(columns.inputs, columns.outputs, dydx if held else {}, columns.units)
