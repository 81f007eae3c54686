"""A bar for long runs, on a terminal alone; a callable instead is called with what is done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]
Report = Callable[[int, int], None]

# Shorter runs need no bar, and one that flashes up is noise.
_PATIENCE = 2.0


class Progress:
    """How far a loop over rows has come.

    Args:
        show: None for a bar if stderr is a terminal and the loop lasts longer than two seconds;
            False for nothing; or a callable that gets (rows done, rows in all) after each batch.
    """

    def __init__(self, show: bool | Report | None = None) -> None:
        self._show = show

    @contextmanager
    def over(self, total: int, label: str) -> Iterator[Advance]:
        """Report on a loop over `total` rows; the body calls what it gets with rows just done."""
        done = 0
        bar: _Bar | None = None
        if self._show is None or self._show is True:
            bar = _Bar(total, label) if sys.stderr.isatty() else None

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            if bar is not None:
                bar.update(done)
            elif callable(self._show):
                self._show(done, total)

        try:
            yield advance
        finally:
            if bar is not None:
                bar.close()


class _Bar:
    """A rich bar that appears once the loop has proved long."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label = total, label
        self._appears = time.monotonic() + _PATIENCE
        self._progress: Any = None
        self._task: Any = None

    def update(self, done: int) -> None:
        if self._progress is None and time.monotonic() >= self._appears:
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._progress = RichProgress(console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(self._label, total=self._total)
            self._progress.start()
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
