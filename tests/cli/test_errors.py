"""Mistakes are records: what is typed, and the words of the one line that answers it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import run

from pullback.learning import DifferentialRegressor

XY = ("--x", "a", "--y", "y")


def nothing(here: Path) -> None:
    """No file of its own."""


def text(name: str, content: str) -> Callable[[Path], Any]:
    return lambda here: (here / name).write_text(content)


def rows(content: str) -> Callable[[Path], Any]:
    return text("rows.csv", content)


@dataclass(frozen=True)
class Mistake:
    name: str
    args: tuple[str, ...]
    words: tuple[str, ...]
    make: Callable[[Path], Any] = nothing


# MADE stands for the folder with the tables and the model of the fixture.
FIT = ("fit", "rows.csv", *XY, "-o", "out")
PREDICT = ("predict", "MADE/model", "rows.csv", "-o", "out.csv")
REPORT = ("report", "MADE/model", "MADE/test.csv", "-o", "out.html")

MISTAKES = [
    Mistake("no such file", FIT, ("rows.csv: there is no such file",)),
    Mistake("empty file", FIT, ("rows.csv: the file is empty",), rows("")),
    Mistake("only a header", FIT, ("columns and no rows",), rows("a,y\n")),
    Mistake("bad cell", FIT, ("rows.csv", "row 2 (line 3", "'y'", "'x'"), rows("a,y\n1,2\n3,x\n")),
    Mistake("empty input", FIT, ("row 1", "'a'", "is empty"), rows("a,y\n,2\n")),
    Mistake("infinite", FIT, ("row 1", "'y'", "infinite"), rows("a,y\n1,inf\n")),
    Mistake("column", FIT, ("no column 'a'", "did you mean 'aa'"), rows("aa,b,y\n1,2,3\n")),
    Mistake("truncated row", FIT, ("row 2", "expected 2 cells"), rows("a,y\n1,2\n3")),
    Mistake("not known", FIT, ("known",), rows("a,y\n1,\n2,\n3,\n")),
    Mistake("no roles", ("fit", "rows.csv", "-o", "out"), ("which columns are x",),
            rows("a,y\n1,2")),
    Mistake("derivative", (*FIT, "--dydx", "*"), ("which derivative 'a' is",), rows("a,y\n1,2")),
    Mistake("two roles", (*FIT, "--dydx", "a"), ("'a' is both x and dydx",), rows("a,y\n1,2")),
    Mistake("activation", (*FIT, "--activation", "sofplus"), ("sofplus",), rows("a,y\n1,2\n2,3\n")),
    Mistake(
        "contradiction",
        ("fit", "rows.csv", *XY, "-o", "out", "--hidden", "4", "--epochs", "2"),
        ("rows.csv", "dydx contradicts y", "derivatives of y by a", "--check-labels off"),
        rows("a,y,dy/da\n" + "".join(f"{a},{a * a},{-2 * a}\n" for a in np.linspace(-1, 1, 40))),
    ),
    Mistake("validation", (*FIT, "--validation", "no.csv"), ("no.csv: there is no such file",),
            rows("a,y\n1,2\n")),
    Mistake("model is a folder", FIT, ("out: exists; pass --force",),
            lambda here: Path("out").mkdir()),
    Mistake(
        "no model to replace",
        (*FIT, "--force"),
        ("out: exists and is not a saved model",),
        lambda here: (Path("out").mkdir(), Path("out/thesis.tex").write_text("years of work")),
    ),
    Mistake("output folder", ("fit", "rows.csv", *XY, "-o", "no/out"), ("there is no folder no",)),
    Mistake("predict missing", PREDICT, ("no column 'spot', one of the model's inputs",),
            rows("vol,y\n1,2\n")),
    Mistake("predict late", PREDICT, ("row 3 (line 4", "'vol'", "'x'"),
            rows("spot,vol\n1,2\n1,2\n1,x\n")),
    Mistake("predict count", (*PREDICT, "--x", "spot"), ("expected 2 columns", "got 1"),
            rows("spot,vol\n1,2\n")),
    Mistake("no model", ("predict", "gone", "rows.csv", "-o", "out.csv"), ("gone:", "config.json"),
            rows("spot,vol\n1,2\n")),
    Mistake("not a model", ("predict", "bad", "rows.csv", "-o", "out.csv"), ("bad:", "corrupt"),
            lambda here: (Path("bad").mkdir(), Path("bad/config.json").write_text("{"))),
    Mistake("exists", PREDICT, ("out.csv: exists; pass --force",), text("out.csv", "old")),
    Mistake("in place", ("predict", "MADE/model", "rows.csv", "-o", "rows.csv", "--force"),
            ("rows.csv: is an input of this command",), rows("spot,vol\n1,2\n")),
    Mistake("ending", ("predict", "MADE/model", "rows.csv", "-o", "out.xlsx"),
            ("out.xlsx: expected a name that ends in",), rows("spot,vol\n1,2\n")),
    Mistake("report truths", ("report", "MADE/model", "rows.csv", "-o", "out.html"),
            ("no column 'price', one of the model's outputs",), rows("spot,vol\n1,2\n")),
    Mistake("report exists", REPORT, ("out.html: exists",), text("out.html", "old")),
    Mistake("json exists", (*REPORT, "--json", "m.json"), ("m.json: exists",),
            text("m.json", "{}")),
    Mistake("against", (*REPORT, "--against", "gone"), ("gone:",)),
    Mistake("other columns", (*REPORT, "--against", "MADE/other"),
            ("other: expected a model from spot, vol to price", "got one from a to y")),
    Mistake("demo exists", ("demo", "-o", "out.html"), ("out.html: exists",),
            text("out.html", "old")),
]  # fmt: skip


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder"
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes_are_answered_with_one_line_and_nothing_is_written(made, here, mistake):
    mistake.make(here)
    before = tree(here)
    result = run(*(arg.replace("MADE", str(made.folder)) for arg in mistake.args))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("pullback: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    for words in mistake.words:
        assert words in result.stderr
    assert tree(here) == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("fit", "rows.csv"), "Missing option '-o'"),
        (("fit", "r.csv", "-o", "m", "--hidden", "a,b"), "such as 20,20, got 'a,b'"),
        (("fit", "r.csv", "-o", "m", "--hidden", "0"), "expected widths"),
        (("fit", "r.csv", "-o", "m", "--epochs", "0"), "'--epochs'"),
        (("fit", "r.csv", "-o", "m", "--dydx", "a", "--no-derivatives"), "exclude each other"),
        (("demo", "--rows", "x"), "not a valid integer"),
        (("dome",), "No such command 'dome'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(here, args, words):
    result = run(*args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert tree(here) == {}


def test_wrong_unit(here):
    (here / "r.csv").write_text("a,y\n1,2\n")
    result = run("fit", "r.csv", *XY, "-o", "m", "--unit", "a")
    assert result.exit_code == 2
    assert "expected NAME=UNIT, got 'a'" in result.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(made, here):
    here.chmod(0o500)
    result = run("predict", made.model, made.folder / "test.csv", "-o", "out.csv")
    here.chmod(0o700)
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr


def test_an_error_of_the_system_is_one_line(made, here, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "out.csv")

    monkeypatch.setattr("pullback.cli.predict.open_writer", full)
    result = run("predict", made.model, made.folder / "test.csv", "-o", "out.csv")
    assert result.exit_code == 2
    assert result.stderr == "pullback: out.csv: No space left on device\n"


def test_interrupted_prediction_writes_nothing(made, here, monkeypatch):
    def interrupt(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(DifferentialRegressor, "predict", interrupt)
    result = run("predict", made.model, made.folder / "test.csv", "-o", "out.csv")
    assert result.exit_code == 130
    assert "interrupted; nothing was written" in result.stderr
    assert tree(here) == {}


def test_a_fault_of_our_own_is_not_hidden(made, here, monkeypatch):
    """Only mistakes of the user become one line; a bug keeps its traceback."""
    monkeypatch.setattr("pullback.cli.predict.open_writer", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("predict", made.model, made.folder / "test.csv", "-o", "out.csv")


def test_warnings_are_lines(here):
    content = "a,y,dy/da\n" + "".join(f"{a},{a * a},{-2 * a}\n" for a in np.linspace(-1, 1, 40))
    (here / "rows.csv").write_text(content)
    result = run(*FIT, "--hidden", "4", "--epochs", "2", "--check-labels", "warn")
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("pullback: warning: ")
    assert "dydx contradicts y" in line
    shutil.rmtree("out")
