"""Writing rows block by block as parquet, npz or csv; the file appears whole or not at all."""

import csv
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pullback.learning.columns import Columns
from pullback.tables.parquet import pyarrow
from pullback.tables.replacing import replacing
from pullback.tables.source import suffix_of
from pullback.tables.table import Table

Flags = Mapping[str, NDArray[Any]]
Write = Callable[[Table, Flags], None]


@dataclass(frozen=True)
class _Field:
    """A column of a file and what it is."""

    name: str
    role: str
    unit: str = ""
    output: str = ""
    input: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        said = {"role": self.role, "unit": self.unit, "output": self.output, "input": self.input}
        return {key: value for key, value in said.items() if value}


def write_table(path: str | Path, table: Table) -> None:
    """Write a table, roles and units with it (a csv file keeps names alone).

    Raises:
        FileError: the folder is not there, or the name's ending is not known.
        MissingExtraError: a parquet file without pyarrow.
    """
    with open_writer(path, table.columns) as write:
        write(table, {})


@contextmanager
def open_writer(path: str | Path, columns: Columns) -> Iterator[Write]:
    """Give a function that writes one block: a `Table`, and further columns by name, [n] each.

    The first block decides which columns there are. Derivatives are columns such as dprice/dspot,
    in an npz file an array dydx [N, K, D].

    Raises:
        FileError: the folder is not there, or the name's ending is not known.
        MissingExtraError: a parquet file without pyarrow.
    """
    path = Path(path)
    writers = {".csv": _csv_writer, ".npz": _npz_writer, ".parquet": _parquet_writer}
    writer = writers[suffix_of(path)]
    with replacing(path) as temporary, writer(temporary, columns) as write:
        yield write


def _fields(table: Table, flags: Flags) -> list[_Field]:
    columns = table.columns
    fields = [_Field(name, "x", columns.unit(name)) for name in columns.inputs]
    if table.y is not None:
        fields += [_Field(name, "y", columns.unit(name)) for name in columns.outputs]
    if table.dydx is not None:
        for output in columns.outputs:
            for input in columns.inputs:
                name = columns.derivative(output, input)
                fields.append(_Field(name, "dydx", columns.unit(name), output, input))
    return fields + [_Field(name, "flag") for name in flags]


def _arrays(table: Table, flags: Flags) -> list[NDArray[Any]]:
    """One array a field, in the order of `_fields`."""
    wide = [table.x, table.y, None if table.dydx is None else table.dydx.reshape(len(table), -1)]
    return [column for part in wide if part is not None for column in part.T] + [*flags.values()]


@contextmanager
def _csv_writer(path: Path, columns: Columns) -> Iterator[Write]:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")

        def write(table: Table, flags: Flags) -> None:
            if not file.tell():
                writer.writerow([field.name for field in _fields(table, flags)])
            cells = [_cells(array) for array in _arrays(table, flags)]
            writer.writerows(zip(*cells, strict=True))

        yield write


def _cells(array: NDArray[Any]) -> Sequence[Any]:
    """Numbers in the fewest digits that read back the same; empty if unknown; a flag is 0 or 1."""
    if array.dtype.kind == "b":
        return array.astype(np.int8).tolist()
    return ["" if cell != cell else cell for cell in array.tolist()]


@contextmanager
def _parquet_writer(path: Path, columns: Columns) -> Iterator[Write]:
    pa, pq = pyarrow(path)
    with ExitStack() as stack:
        opened: list[Any] = []

        def write(table: Table, flags: Flags) -> None:
            arrays = [pa.array(array, from_pandas=True) for array in _arrays(table, flags)]
            if not opened:
                fields = zip(_fields(table, flags), arrays, strict=True)
                schema = pa.schema(
                    [pa.field(f.name, a.type, metadata=f.metadata) for f, a in fields]
                )
                opened.append(stack.enter_context(pq.ParquetWriter(path, schema)))
            opened[0].write_batch(pa.record_batch(arrays, schema=opened[0].schema))

        yield write


@contextmanager
def _npz_writer(path: Path, columns: Columns) -> Iterator[Write]:
    """Members of an archive lie one after the other: each is gathered in a file of its own."""
    with ExitStack() as stack:
        parts: dict[str, tuple[IO[bytes], NDArray[Any]]] = {}
        rows = 0

        def write(table: Table, flags: Flags) -> None:
            nonlocal rows
            rows += len(table)
            for key, array in {"x": table.x, "y": table.y, "dydx": table.dydx, **flags}.items():
                if array is None:
                    continue
                if key not in parts:
                    file = stack.enter_context(tempfile.TemporaryFile(dir=path.parent))
                    parts[key] = (file, array[:0])
                parts[key][0].write(np.ascontiguousarray(array).data)

        yield write
        with zipfile.ZipFile(path, "x") as archive:
            for key, (file, like) in parts.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    _write_header(member, (rows, *like.shape[1:]), like.dtype)
                    file.seek(0)
                    shutil.copyfileobj(file, member)
            for key, text in _texts(columns).items():
                with archive.open(f"{key}.npy", "w") as member:
                    npy.write_array(member, text, allow_pickle=False)


def _write_header(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(member, header)


def _texts(columns: Columns) -> dict[str, NDArray[np.str_]]:
    return {
        "inputs": np.array(columns.inputs),
        "outputs": np.array(columns.outputs),
        "units": np.array(json.dumps(dict(columns.units))),
    }
