"""Parquet: columns under their names; roles and units in the metadata of each field.

A field says `role` (x, y or dydx), `unit`, and for a derivative `output` and `input`. Kept on the
field, they follow a column when it is selected or renamed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pullback._extras import require
from pullback.errors import TableError
from pullback.tables.source import Block, Roles, Source

_READ_BYTES = 1 << 20


def pyarrow(path: Path) -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, or an error that names the extra."""
    purpose = f"{path}: a parquet file"
    return (
        require("pyarrow", extra="parquet", purpose=purpose),
        require("pyarrow.parquet", extra="parquet", purpose=purpose),
    )


class ParquetSource(Source):
    """A parquet file."""

    def __init__(self, path: Path) -> None:
        self._pa, self._pq = pyarrow(path)
        with self._readable(path), self._pq.ParquetFile(path) as file:
            schema = file.schema_arrow
        super().__init__(path, schema.names, {}, _roles(schema))

    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Block]:
        """See `Source.blocks`."""
        done = 0
        # Without pre_buffer=False every row group read stays in memory until the end; without a
        # buffer_size each group is read whole, and some writers make one of the whole file.
        options = {"pre_buffer": False, "buffer_size": _READ_BYTES}
        with self._readable(self.path), self._pq.ParquetFile(self.path, **options) as file:
            batches = file.iter_batches(batch_size=rows, columns=list(names), use_threads=False)
            for batch in batches:
                block = np.empty((len(batch), len(names)))
                for k, name in enumerate(names):
                    # By name: asking for "a" also brings a column called "a.b".
                    column = batch.column(batch.schema.get_field_index(name))
                    block[:, k] = self._numbers(name, column, done)
                done += len(batch)
                yield block

    def _numbers(self, name: str, column: Any, done: int) -> Block:
        kinds = self._pa.types
        kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
        numeric = (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_boolean)
        if column.null_count == len(column):
            return np.full(len(column), np.nan)  # whatever the type of cells that are not there
        if not any(test(kind) for test in numeric):
            self._refuse(name, column, kind, done)
        numbers = column.cast(self._pa.float64(), safe=False)
        return numbers.to_numpy(zero_copy_only=False)

    def _refuse(self, name: str, column: Any, kind: Any, done: int) -> None:
        cells = enumerate(column.to_pylist(), 1)
        row, cell = next((row, cell) for row, cell in cells if cell is not None)
        problem = f"expected a number, got {str(cell)[:40]!r} (the column's type is {kind})"
        raise self.error(done + row, name, problem)

    @contextmanager
    def _readable(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (self._pa.ArrowException, OSError) as error:
            raise TableError(
                f"{path}: the file is damaged or truncated: {str(error).splitlines()[0]}"
            ) from error


def _roles(schema: Any) -> Roles:
    x, y, dydx, units = [], [], {}, {}
    for field in schema:
        said = {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}
        if said.get("unit"):
            units[field.name] = said["unit"]
        match said.get("role"):
            case "x":
                x.append(field.name)
            case "y":
                y.append(field.name)
            case "dydx" if "output" in said and "input" in said:
                dydx[said["output"], said["input"]] = field.name
    return Roles(tuple(x), tuple(y), dydx, units)
