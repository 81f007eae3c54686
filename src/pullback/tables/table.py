"""Rows of a file as arrays, with every cell checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pullback.errors import TableError
from pullback.learning.columns import Columns
from pullback.tables.layout import Layout, choose
from pullback.tables.source import Block, Source, open_source

CHUNK_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with their names; NaN in y or dydx means unknown.

    Attributes:
        columns: names and units.
        x: [N, D].
        y: [N, K], or None where values were not asked for.
        dydx: [N, K, D], or None where the file has no derivatives.
    """

    columns: Columns
    x: NDArray[np.float64]
    y: NDArray[np.float64] | None = None
    dydx: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def values(self) -> NDArray[np.float64]:
        """y, where it was asked for."""
        assert self.y is not None, "these rows were read without values"
        return self.y


def read_table(
    path: str | Path,
    *,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    dydx: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Table:
    """Read inputs, values and derivatives from a parquet, npz or csv file; see `choose`.

    Raises:
        TableError: a file, row or cell that cannot be used, by its name and number.
    """
    source = open_source(path)
    return read_all(source, choose(source, x=x, y=y, dydx=dydx, units=units))


def read_all(source: Source, layout: Layout) -> Table:
    """Every row of the columns of a layout.

    Raises:
        TableError: there is no row, or a cell cannot be used.
    """
    return _joined(list(iter_chunks(source, layout)))


def iter_chunks(source: Source, layout: Layout, *, rows: int = CHUNK_ROWS) -> Iterator[Table]:
    """The columns of a layout, at most `rows` rows at a time, in bounded memory.

    Raises:
        TableError: there is no row, or a cell cannot be used: x must be known and nothing may be
            infinite.
    """
    names = (*layout.x, *layout.y, *layout.dydx.values())
    done = 0
    for block in source.blocks(names, rows):
        _check_cells(source, names, block, set(layout.x), done)
        done += len(block)
        if len(block):
            yield _split(layout, block)
    if not done:
        raise TableError(f"{source.path}: the file has columns and no rows")


def _check_cells(
    source: Source, names: Sequence[str], block: Block, inputs: set[str], done: int
) -> None:
    if np.isfinite(block).all():
        return
    known = np.array([name in inputs for name in names])
    bad = np.isinf(block) | (np.isnan(block) & known)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        problem = (
            "expected a finite number, got an infinite one"
            if np.isinf(block[row, column])
            else "the cell is empty; an input must be known in every row"
        )
        raise source.error(done + int(row) + 1, names[column], problem)


def _split(layout: Layout, block: Block) -> Table:
    inputs, outputs = len(layout.x), len(layout.y)
    y = block[:, inputs : inputs + outputs] if outputs else None
    dydx = None
    if layout.dydx:
        dydx = np.full((len(block), len(layout.columns.outputs), inputs), np.nan)
        for i, (k, d) in enumerate(layout.dydx):
            dydx[:, k, d] = block[:, inputs + outputs + i]
    return Table(layout.columns, block[:, :inputs], y, dydx)


def _joined(parts: list[Table]) -> Table:
    def join(name: str) -> NDArray[np.float64] | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    x = join("x")
    assert x is not None, "iter_chunks yields at least one chunk, each with x"
    return Table(parts[0].columns, x, join("y"), join("dydx"))
