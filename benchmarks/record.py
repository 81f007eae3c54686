"""What every benchmark does alike: CPU seconds, results as JSON, the verdict on its claims."""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Claim:
    """One sentence that a benchmark is there to show.

    Attributes:
        text: such as "airfoil: R² of y".
        measured: the figure.
        bound: what it is held against.
        above: whether the figure must reach the bound from above or stay below it.
        premise: whether this is what makes the comparison one at all.
    """

    text: str
    measured: float
    bound: float
    above: bool = True
    premise: bool = False

    @property
    def holds(self) -> bool:
        """NaN holds nothing."""
        if self.above:
            return self.measured >= self.bound
        return self.measured <= self.bound


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """Process CPU seconds spent inside, appended to the list."""
    spent: list[float] = []
    start = time.process_time()
    try:
        yield spent
    finally:
        spent.append(time.process_time() - start)


def load(name: str) -> dict[str, Any]:
    """Results written before, by key; empty where there are none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def save(name: str, results: dict[str, Any]) -> None:
    """Write results whole or not at all, with the machine they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "python": platform.python_version(), "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    path = RESULTS / f"{name}.json"
    new = path.with_suffix(".json.new")
    new.write_text(json.dumps({"machine": machine, "results": results}, indent=1))
    new.replace(path)


def conclude(claims: list[Claim], console: Console) -> None:
    """Print every claim with its figure; exit 1 if one does not hold."""
    for claim in claims:
        mark = "[green]reached[/]" if claim.holds else "[bold red]MISSED[/]"
        sign = "≥" if claim.above else "≤"
        kind = "premise" if claim.premise else "claim"
        figures = f"{fraction(claim.measured)} {sign} {fraction(claim.bound)}"
        console.print(f"{mark}  {kind}: {claim.text}: {figures}", highlight=False)
    if not all(claim.holds for claim in claims):
        sys.exit(1)


def claims_as_json(claims: list[Claim]) -> list[dict[str, Any]]:
    return [{**asdict(claim), "holds": claim.holds} for claim in claims]


def fraction(value: float | None) -> str:
    """A figure near one by its distance from one, where four digits would not show it.

    >>> fraction(0.98), fraction(0.99999996)
    ('0.98', '1 - 4e-08')
    """
    if value is None:
        return "–"
    if 0.999 <= value < 1.0:
        return f"1 - {1.0 - value:.2g}"
    return f"{value:.4g}"
