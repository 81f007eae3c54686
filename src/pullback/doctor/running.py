"""Running somebody's script, module or tests under the doctor, as Python itself would."""

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pullback.doctor.findings import Finding, Findings
from pullback.doctor.session import doctor

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Outcome(NamedTuple):
    """How a run ended.

    Attributes:
        code: the exit code that the script alone would have had.
        error: the traceback that Python would have printed, with the findings about it, or "".
        findings: everything that was found.
        shown: findings that the traceback already shows.
    """

    code: int
    error: str
    findings: Findings
    shown: tuple[Finding, ...]


def run_script(path: str, arguments: Sequence[str], *, level: str = "full") -> Outcome:
    """Run a file as `python path arguments` would."""
    with _as_main([path, *arguments], os.path.dirname(os.path.abspath(path))):
        return _watched(lambda: runpy.run_path(path, run_name="__main__"), path, level)


def run_module(name: str, arguments: Sequence[str], *, level: str = "full") -> Outcome:
    """Run a module as `python -m name arguments` would."""
    with _as_main([name, *arguments], os.getcwd()):
        return _watched(
            lambda: runpy.run_module(name, run_name="__main__", alter_sys=True), "", level
        )


def run_tests(arguments: Sequence[str], *, level: str = "full") -> Outcome:
    """Run pytest on node ids; findings about a failing test are shown with its error."""
    import pytest  # only here: the doctor does not need it

    def tests() -> None:
        raise SystemExit(int(pytest.main(list(arguments))))

    with _as_main(["pytest", *arguments], os.getcwd()):
        return _watched(tests, "", level)


@contextmanager
def _as_main(argv: list[str], folder: str) -> Iterator[None]:
    before, path = sys.argv, list(sys.path)
    sys.argv = argv
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv = before
        sys.path[:] = path


def _watched(run: Callable[[], object], path: str, level: str) -> Outcome:
    watch = doctor(level=level)
    code, text = 0, ""
    shown: tuple[Finding, ...] = ()
    try:
        with watch:
            run()
    except SystemExit as ended:
        code, text = _exit_code(ended)
    except KeyboardInterrupt:
        code, text = INTERRUPTED, "KeyboardInterrupt\n"
    except BaseException as error:
        code, text = 1, _as_python_prints(error, path)
        notes = getattr(error, "__notes__", [])
        shown = tuple(finding for finding in watch.findings if str(finding) in notes)
    return Outcome(code, text, watch.findings, shown)


def _exit_code(ended: SystemExit) -> tuple[int, str]:
    if ended.code is None:
        return 0, ""
    return (ended.code, "") if isinstance(ended.code, int) else (1, f"{ended.code}\n")


def _as_python_prints(error: BaseException, path: str) -> str:
    """The traceback without the frames that ran the script and those that watched it."""
    told = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = told
    while each is not None:
        frames = [frame for frame in each.stack if not frame.filename.startswith(_OWN)]
        start = next(
            (i for i, frame in enumerate(frames) if not frame.filename.startswith("<frozen")), 0
        )
        each.stack = traceback.StackSummary.from_list(frames[start:])
        each = each.__cause__ or each.__context__
    return "".join(told.format())
