"""A data file as named columns of numbers, read block by block so that memory stays bounded."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pullback.errors import TableError

Block = NDArray[np.float64]

# A file is known by its first bytes as well as by its name, so that a wrong name can be said.
_MAGIC = {b"PAR1": ".parquet", b"PK\x03\x04": ".npz"}
SUFFIXES = (".parquet", ".npz", ".csv")


@dataclass(frozen=True)
class Roles:
    """What a file itself says of its columns.

    Attributes:
        x: names of the inputs.
        y: names of the outputs.
        dydx: the column of each derivative, by (output, input).
        units: unit by column.
    """

    x: tuple[str, ...] = ()
    y: tuple[str, ...] = ()
    dydx: Mapping[tuple[str, str], str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


class Source(ABC):
    """An opened data file; its cells are not read yet.

    Attributes:
        path: of the file.
        names: of all columns.
        groups: names that stand for several columns (a two-dimensional array of an npz file).
        roles: what the file itself says of its columns.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        groups: Mapping[str, tuple[str, ...]],
        roles: Roles,
    ) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise TableError(f"{path}: two columns are called {twice[0]!r}; rename one")
        self.path = path
        self.names = tuple(names)
        self.groups = dict(groups)
        self.roles = roles

    @abstractmethod
    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Block]:
        """The named columns, [n, len(names)], at most `rows` rows at a time; NaN where empty."""

    def place(self, row: int) -> str:
        """How a person finds data row `row` (counted from one) in the file."""
        return f"row {row}"

    def error(self, row: int, name: str, problem: str) -> TableError:
        """An error that names file, row and column."""
        return TableError(f"{self.path}: {self.place(row)}, column {name!r}: {problem}")


def suffix_of(path: Path) -> str:
    """The suffix of a data file, in lower case; refuses those that cannot be read or written."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    return suffix


def open_source(path: str | Path) -> Source:
    """Open a parquet, npz or csv file for reading.

    Raises:
        TableError: there is no such file, it is empty, or it is not what its name says.
        MissingExtraError: a parquet file without pyarrow.
    """
    path = Path(path)
    suffix = suffix_of(path)
    _check_content(path, suffix)
    # Imported late: each format brings its own library.
    if suffix == ".parquet":
        from pullback.tables.parquet import ParquetSource

        return ParquetSource(path)
    if suffix == ".npz":
        from pullback.tables.npz import NpzSource

        return NpzSource(path)
    from pullback.tables.delimited import CsvSource

    return CsvSource(path)


def _check_content(path: Path, suffix: str) -> None:
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "there is no such file"
        raise TableError(f"{path}: {what}")
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise TableError(f"{path}: the file is empty")
    found = _MAGIC.get(start)
    if suffix == ".csv" and found:
        raise TableError(f"{path}: this is a {found} file under another name; rename it")
    if suffix != ".csv" and found != suffix:
        instead = f"; it is a {found} file, rename it" if found else ""
        raise TableError(f"{path}: this is not a {suffix} file{instead}")
