"""Findings: what the doctor saw, as frozen records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from pullback.doctor.rendering import as_html, as_json, as_text

SEVERITIES = ("info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One fault: what it is, where it was made, freed and used, and what to do about it.

    Attributes:
        rule: id of the rule, as in `pullback doctor --explain RULE`.
        severity: "info", "warning" or "error".
        what: the carrier or the term, in one sentence.
        path: the variable or attribute that carries the fault, or "".
        cause: a short label for why the graph is what it is.
        made, freed, used: where, as "file:line in function".
        fix: one concrete edit.
        avoid: what looks like a fix and what it would do here.
        numbers: counts and bytes.
    """

    rule: str
    severity: str
    what: str
    path: str = ""
    cause: str = ""
    made: str = ""
    freed: str = ""
    used: str = ""
    fix: str = ""
    avoid: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """The finding as lines of text."""
        return as_text(self)

    def parts(self) -> list[tuple[str, str]]:
        """Label and words of each part that has something to say."""
        pairs = (
            ("what", self.what),
            ("made", self.made),
            ("freed by", self.freed),
            ("used", self.used),
            ("fix", self.fix),
            ("not", self.avoid),
        )
        return [(label, words) for label, words in pairs if words]


class Findings(Sequence[Finding]):
    """All findings of one run, the gravest first; grows while the run goes on.

    >>> findings = Findings()
    >>> findings.add(Finding("carried-state", "error", "`h` holds the graph of pass 0"))
    >>> len(findings), findings.worst
    (1, 'error')
    """

    def __init__(self) -> None:
        self._items: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Keep a finding, once."""
        if finding not in self._items:
            self._items.append(finding)
            self._items.sort(key=lambda f: -SEVERITIES.index(f.severity))

    @property
    def worst(self) -> str | None:
        """The gravest severity, or None."""
        return self._items[0].severity if self._items else None

    def at_least(self, severity: str) -> tuple[Finding, ...]:
        """Findings as grave as `severity`, or graver."""
        least = SEVERITIES.index(severity)
        return tuple(f for f in self._items if SEVERITIES.index(f.severity) >= least)

    def to_json(self) -> str:
        """The findings as a JSON array."""
        return as_json(self)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._items))

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return tuple(self._items)[index] if isinstance(index, slice) else self._items[index]

    def __str__(self) -> str:
        return "\n\n".join(str(f) for f in self._items) or "pullback doctor: nothing found"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self)
