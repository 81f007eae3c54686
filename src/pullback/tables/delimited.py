"""Comma-separated text: one header line with names, then numbers.

Commas, semicolons or tabs separate, whichever the header holds. An empty cell, and nan, na, n/a,
null or none in any case, means unknown.
"""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pullback.errors import TableError
from pullback.tables.source import Block, Roles, Source

_UNKNOWN = frozenset({"", "nan", "na", "n/a", "null", "none"})


class CsvSource(Source):
    """A csv file."""

    def __init__(self, path: Path) -> None:
        with _text(path) as file:
            first = file.readline()
            self._delimiter = _delimiter(first)
            header = next(csv.reader([first], delimiter=self._delimiter), [])
        names = [name.strip() for name in header]
        if not any(names):
            raise TableError(f"{path}: expected a first line with the columns' names; it is blank")
        if all(_is_number(name) for name in names):
            raise TableError(
                f"{path}: expected a first line with the columns' names, got numbers "
                f"({first.strip()[:40]}); put a header there"
            )
        self._lines: list[int] = []
        self._before = 0
        super().__init__(path, names, {}, Roles())

    def place(self, row: int) -> str:
        """The row, and the line of the file, which counts the header."""
        return f"row {row} (line {self._lines[row - self._before - 1]}, header included)"

    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Block]:
        """See `Source.blocks`."""
        self._before, self._lines = 0, []
        where = [self.names.index(name) for name in names]
        with _text(self.path) as file:
            reader = csv.reader(file, delimiter=self._delimiter, strict=True)
            next(reader)
            while records := self._records(reader, rows):
                try:
                    # The fast way: every cell a number, in the plain case.
                    block = np.array([[float(record[j]) for j in where] for record in records])
                except ValueError:
                    block = self._cell_by_cell(records, where)
                yield block

    def _records(self, reader: Any, rows: int) -> list[list[str]]:
        self._before += len(self._lines)
        records: list[list[str]] = []
        self._lines = []
        for record in reader:
            if not record:
                continue  # a blank line, such as editors leave at the end
            records.append(record)
            self._lines.append(reader.line_num)
            if len(record) != len(self.names):
                raise TableError(
                    f"{self.path}: {self.place(self._before + len(records))}: expected "
                    f"{len(self.names)} cells as in the header, got {len(record)}"
                )
            if len(records) == rows:
                break
        return records

    def _cell_by_cell(self, records: list[list[str]], where: Sequence[int]) -> Block:
        block = np.empty((len(records), len(where)))
        for i, record in enumerate(records):
            for k, j in enumerate(where):
                try:
                    block[i, k] = _number(record[j])
                except ValueError:
                    row = self._before + i + 1
                    raise self.error(row, self.names[j], _not_a_number(record[j])) from None
        return block


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """The file as text; what is wrong with it as text is said as a `TableError`."""
    # utf-8-sig: spreadsheets put a byte order mark in front.
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield file
        except UnicodeDecodeError as error:
            raise TableError(
                f"{path}: expected text in UTF-8, got byte 0x{error.object[error.start]:02x}"
            ) from error
        except csv.Error as error:
            raise TableError(f"{path}: cannot be split into cells: {error}") from error


def _delimiter(header: str) -> str:
    return next((sign for sign in ",;\t" if sign in header), ",")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(cell: str) -> float:
    return np.nan if cell.strip().lower() in _UNKNOWN else float(cell)


def _not_a_number(cell: str) -> str:
    comma = _is_number(cell.replace(",", ".", 1))
    hint = "; write a decimal point, not a comma" if comma else ""
    return f"expected a number, got {cell[:40]!r}{hint}"
