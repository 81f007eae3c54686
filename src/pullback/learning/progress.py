"""A progress bar with both losses, when a terminal is there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Report(Protocol):
    """Told after each epoch how far a run has come and what it met."""

    def __call__(self, done: int, total: int, terms: dict[str, float]) -> None:
        """Take note."""


def _silent(done: int, total: int, terms: dict[str, float]) -> None:
    """Take no note."""


@contextmanager
def progress_bar(show: bool | None, title: str) -> Iterator[Report]:
    """A rich progress bar on standard error.

    Args:
        show: True or False; None shows it if standard error is a terminal.
        title: what is running.
    """
    if show is False or (show is None and not sys.stderr.isatty()):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[losses]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, losses="")

        def report(done: int, total: int, terms: dict[str, float]) -> None:
            losses = "  ".join(f"{name} {value:.3g}" for name, value in terms.items())
            bar.update(task, completed=done, total=total, losses=losses)

        yield report
