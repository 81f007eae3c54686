"""Programs with their answers: each says in its first lines what the doctor should find."""

import io
import re
import runpy
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pullback.doctor import Findings, doctor

PROGRAMS = Path(__file__).parent / "programs"
_MARK = re.compile(r"#.*\b(MADE|USED|FREED)\b")


@dataclass(frozen=True)
class Program:
    """A program and what it declares: rule, carrier, fix; lines by mark."""

    path: Path
    rules: tuple[str, ...]
    carriers: tuple[str, ...]
    fixes: tuple[str, ...]
    says: str
    marks: dict[str, set[str]] = field(default_factory=dict)

    @property
    def name(self):
        return self.path.parent.name if self.path.name == "main.py" else self.path.stem


def programs(kind):
    found = sorted([*(PROGRAMS / kind).glob("*.py"), *(PROGRAMS / kind).glob("*/main.py")])
    return [_read(path) for path in found]


def _read(path):
    text = path.read_text()
    files = path.parent.glob("*.py") if path.name == "main.py" else [path]
    marks = {}
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if _MARK.search(line):
                for mark in re.findall(r"MADE|USED|FREED", line.partition("#")[2]):
                    marks.setdefault(mark, set()).add(f"{file.name}:{number}")

    def said(key):
        found = re.search(rf"^# {key}: (.*)$", text, re.M)
        return tuple(p.strip() for p in found[1].split("|")) if found else ()

    return Program(
        path, said("rule"), said("carrier"), said("fix"), (said("says") or ("",))[0], marks
    )


@contextmanager
def _importable(folder):
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def diagnose(program, level="full"):
    """Run a program under the doctor: its findings, the exception, its output."""
    torch.manual_seed(0)
    watch, error, out = doctor(level=level), None, io.StringIO()
    with _importable(program.path.parent), redirect_stdout(out), redirect_stderr(out):
        try:
            with watch:
                runpy.run_path(str(program.path), run_name="__main__")
        except RuntimeError as raised:
            error = raised
    return watch.findings, error, out.getvalue()


def ends_with(path, wanted):
    """Whether a path ends in the wanted name, at the border of a name."""
    return any(
        path == w or path.endswith("." + w) or (path.endswith(w) and w[:1] in "[<") for w in wanted
    ) or any(w in path for w in wanted if "_cache" in w)


def score(program, findings: Findings):
    """What of the answer was right: carrier, cause, fix, lines."""
    first = findings[0] if len(findings) else None
    if first is None:
        return {"carrier": False, "cause": False, "fix": False, "lines": False}
    places = {"MADE": first.made, "USED": first.used, "FREED": first.freed}
    lines = all(
        any(re.search(rf"{re.escape(line)}\b", places[mark]) for line in lines)
        for mark, lines in program.marks.items()
    )
    return {
        "carrier": not program.carriers or ends_with(first.path, program.carriers),
        "cause": first.rule in program.rules and program.says in first.what,
        "fix": any(fix in first.fix for fix in program.fixes),
        "lines": lines,
    }
