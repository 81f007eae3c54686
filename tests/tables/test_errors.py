"""Bad files are records: how to make one, what is asked of it, and the words expected."""

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pullback.errors import FileError, InputError, MissingExtraError, TableError
from pullback.tables import (
    Columns,
    Table,
    choose,
    iter_chunks,
    open_source,
    open_writer,
    read_table,
    write_table,
)


@dataclass(frozen=True)
class BadFile:
    name: str
    make: Callable[[Path], Any]
    words: tuple[str, ...]
    asked: dict[str, Any] = field(default_factory=lambda: {"x": ["a"], "y": ["y"]})


def text(content: str, encoding: str = "utf-8") -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content.encode(encoding))


def parquet(**columns: Any) -> Callable[[Path], Any]:
    return lambda path: pq.write_table(pa.table(columns), path)


def npz(**arrays: Any) -> Callable[[Path], Any]:
    def make(path: Path) -> None:
        with path.open("wb") as file:  # given a name, numpy would append .npz to it
            np.savez(file, **arrays)

    return make


def cut(make: Callable[[Path], Any], keep: float) -> Callable[[Path], Any]:
    def damaged(path: Path) -> None:
        make(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])

    return damaged


def short_member(path: Path) -> None:
    """An archive that is whole, with an array that ends before its last row."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, rows in (("a", 3), ("y", 9)):
            stream = io.BytesIO()
            np.save(stream, np.zeros(9))
            archive.writestr(f"{name}.npy", stream.getvalue()[: 128 + 8 * rows])


def twice(path: Path) -> None:
    columns = [pa.array([1.0]), pa.array([2.0]), pa.array([3.0])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "y"]), path)


FIVE = np.arange(5.0)
NAN, INF = np.nan, np.inf
GAP = np.array([0, 1, NAN, 3, 4])
FAR = np.array([0, 1, 2, -INF, 4])

BAD_FILES = [
    BadFile("gone.csv", lambda path: None, ("there is no such file",)),
    BadFile("folder.csv", Path.mkdir, ("is a folder, not a file",)),
    BadFile("empty.csv", text(""), ("the file is empty",)),
    BadFile("empty.parquet", text(""), ("the file is empty",)),
    BadFile("empty.npz", text(""), ("the file is empty",)),
    BadFile("data.xlsx", text("a,y\n1,2\n"), (".parquet, .npz, .csv",)),
    BadFile("data", text("a,y\n1,2\n"), (".parquet, .npz, .csv",)),
    BadFile("data.parquet", text("a,y\n1,2\n"), ("not a .parquet file",)),
    BadFile("zip.parquet", npz(a=FIVE), ("not a .parquet file; it is a .npz file",)),
    BadFile("arrow.csv", parquet(a=FIVE), ("a .parquet file under another name",)),
    BadFile("rows.csv", text("a,y\n"), ("columns and no rows",)),
    BadFile("rows.parquet", parquet(a=FIVE[:0], y=FIVE[:0]), ("columns and no rows",)),
    BadFile("rows.npz", npz(a=FIVE[:0], y=FIVE[:0]), ("columns and no rows",)),
    BadFile("blank.csv", text("\n1,2\n"), ("columns' names; it is blank",)),
    BadFile("headless.csv", text("1.5,2\n3,4\n"), ("got numbers (1.5,2)",)),
    BadFile("twice.csv", text("a,y,a\n1,2,3\n"), ("two columns are called 'a'",)),
    BadFile("twice.parquet", twice, ("two columns are called 'a'",)),
    BadFile("word.csv", text("a,y\n1,2\n\n3,four\n"), ("row 2 (line 4, header included)", "'y'")),
    BadFile("comma.csv", text("a;y\n1;2\n3;4,5\n"), ("row 2", "'4,5'", "a decimal point")),
    BadFile("word.parquet", parquet(a=FIVE[:2], y=[None, "four"]), ("row 2, column 'y'", "'four'")),
    BadFile("time.parquet", parquet(a=FIVE, y=pa.array(range(5), pa.date32())), ("row 1", "date")),
    BadFile("word.npz", npz(a=FIVE, y=np.array(list("abcde"))), ("array 'y': expected numbers",)),
    BadFile("pickle.npz", npz(a=FIVE, y=np.array([None])), ("never unpickled",)),
    BadFile("ragged.csv", text("a,y\n1,2\n3\n"), ("row 2 (line 3", "expected 2 cells", "got 1")),
    BadFile("wide.csv", text("a,y\n1,2,3\n"), ("row 1 (line 2", "got 3")),
    BadFile("quote.csv", text('a,y\n1,"2\n'), ("cannot be split into cells",)),
    BadFile("latin.csv", text("a,y\n1,ü\n", "latin-1"), ("UTF-8", "0xfc")),
    BadFile("gap.csv", text("a,y\n1,2\n,3\n"), ("row 2 (line 3", "'a'", "must be known")),
    BadFile("gap.parquet", parquet(a=GAP, y=FIVE), ("row 3, column 'a'", "must be known")),
    BadFile("gap.npz", npz(a=GAP, y=FIVE), ("row 3, column 'a'", "must be known")),
    BadFile("far.csv", text("a,y\n1,inf\n"), ("row 1", "column 'y'", "infinite")),
    BadFile("far.parquet", parquet(a=FIVE, y=FAR), ("row 4, column 'y'", "infinite")),
    BadFile("far.npz", npz(a=FAR, y=FIVE), ("row 4, column 'a'", "infinite")),
    BadFile("cut.parquet", cut(parquet(a=FIVE, y=FIVE), 0.7), ("damaged or truncated",)),
    BadFile("cut.npz", cut(npz(a=FIVE, y=FIVE), 0.7), ("damaged or truncated",)),
    BadFile("short.npz", short_member, ("damaged or truncated", "before its last row")),
    BadFile("uneven.npz", npz(a=FIVE, y=FIVE[1:]), ("equally many rows", "a has 5, y has 4")),
    BadFile(
        "names.npz",
        npz(x=np.ones((3, 2)), y=np.ones(3), inputs=np.array(["a"])),
        ("expected 2 names in inputs", "got 1 and 1"),
    ),
    BadFile(
        "names2.npz",
        npz(x=np.ones((3, 2)), y=np.ones(3), inputs=np.array(["a", "a"])),
        ("got 'a' twice",),
    ),
    BadFile(
        "near.csv",
        text("spot,vol,price\n1,2,3\n"),
        ("no column 'spott', asked for as x", "did you mean 'spot'?"),
        {"x": ["spott"], "y": ["price"]},
    ),
    BadFile(
        "none.csv",
        text("spot,vol\n1,2\n"),
        ("no column 'q*', asked for as y", "there are spot, vol"),
        {"x": ["vol"], "y": ["q*"]},
    ),
    BadFile(
        "slope.csv",
        text("a,y\n1,2\n"),
        ("no column 'dy/da', asked for as dydx",),
        {"x": ["a"], "y": ["y"], "dydx": ["dy/da"]},
    ),
    BadFile("silent.csv", text("a,y\n1,2\n"), ("which columns are x", "--x"), {}),
    BadFile("both.csv", text("a,y\n1,2\n"), ("'a' is both x and y",), {"x": ["*"], "y": ["a"]}),
    BadFile(
        "again.csv", text("a,y\n1,2\n"), ("given twice for x",), {"x": ["a", "a*"], "y": ["y"]}
    ),
    BadFile(
        "unit.csv",
        text("a,y\n1,2\n"),
        ("no column 'b', given a unit",),
        {"x": ["a"], "y": ["y"], "units": {"b": "m"}},
    ),
]


@pytest.mark.parametrize("bad", BAD_FILES, ids=lambda bad: bad.name)
def test_bad_files_are_named_with_row_and_column(tmp_path, bad):
    path = tmp_path / bad.name
    bad.make(path)
    with pytest.raises(TableError) as caught:
        read_table(path, **bad.asked)
    message = str(caught.value)
    assert "\n" not in message
    for words in (str(path), *bad.words):
        assert words in message


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("a.csv", text("a,y\n1,1\n1,2\n1,3\n\n1,4\n1,bad\n"), "row 5 (line 7,"),
        ("b.csv", text("a,y\n1,1\n1,2\n1,3\n\n1,4\n1,inf\n"), "row 5 (line 7,"),
        ("a.parquet", parquet(a=FIVE, y=[*FIVE[:4], INF]), "row 5, column 'y'"),
        ("b.parquet", parquet(a=FIVE, y=[None] * 4 + ["bad"]), "row 5, column 'y'"),
        ("a.npz", npz(a=FIVE, y=np.array([*FIVE[:4], INF])), "row 5, column 'y'"),
    ],
)
def test_rows_are_counted_across_blocks(tmp_path, name, make, words):
    make(tmp_path / name)
    source = open_source(tmp_path / name)
    chunks = iter_chunks(source, choose(source, x=["a"], y=["y"]), rows=2)
    with pytest.raises(TableError, match=re.escape(words)):
        list(chunks)


def test_a_row_with_a_hole_is_counted_across_blocks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n1,1\n1,2\n1,3\n1\n")
    source = open_source(path)
    with pytest.raises(TableError, match=r"row 4 \(line 5,"):
        list(iter_chunks(source, choose(source, x=["a"], y=["y"]), rows=2))


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    columns = Columns(("a",), ("y",))
    block = Table(columns, np.ones((2, 1)), np.ones((2, 1)))
    write_table(path, block)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(path, block)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _write_and_fail(path, block):
    with open_writer(path, block.columns) as write:
        write(block, {})
        raise ZeroDivisionError


def test_writing_where_no_folder_is(tmp_path):
    table = Table(Columns(("a",), ("y",)), np.ones((2, 1)))
    with pytest.raises(FileError, match="there is no folder"):
        write_table(tmp_path / "no" / "rows.csv", table)
    with pytest.raises(TableError, match="ends in"):
        write_table(tmp_path / "rows.txt", table)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    parquet(a=FIVE, y=FIVE)(path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pullback\[parquet\]'"):
        read_table(path, x=["a"], y=["y"])


def test_names_that_clash_are_an_input_error():
    with pytest.raises(InputError):
        Columns(("a", "a"), ("y",))
