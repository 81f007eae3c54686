"""The rules: one family a file; each is an id, a sentence, a function and a page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pullback.doctor.events import Events
from pullback.doctor.examination import Examination
from pullback.doctor.findings import Finding
from pullback.doctor.records import Failure
from pullback.doctor.rules import (
    carried,
    cut,
    disconnected,
    growing,
    inplace,
    once,
    partial,
    shared,
    training,
    waste,
)


@dataclass(frozen=True)
class Rule:
    """One fault that the doctor knows.

    Attributes:
        id: the name of its page.
        sentence: what is wrong, in one sentence.
        of_failure: findings of a backward that raised.
        of_run: findings of a run that did not.
    """

    id: str
    sentence: str
    of_failure: Callable[[Failure], Iterator[Finding]] | None = None
    of_run: Callable[[Events, Examination], Iterator[Finding]] | None = None


_FAMILIES = (carried, once, shared, inplace, disconnected, partial)
_RUN_FAMILIES = (cut, training, growing, waste)

RULES: dict[str, Rule] = {
    id: Rule(id, sentence, of_failure=family.findings)
    for family in _FAMILIES
    for id, sentence in family.RULES.items()
}
RULES |= {
    id: Rule(id, sentence, of_run=family.findings)
    for family in _RUN_FAMILIES
    for id, sentence in family.RULES.items()
}


def failure_findings(failure: Failure) -> Iterator[Finding]:
    """What the rules make of a backward that raised; the first that answers names the cause."""
    for family in _FAMILIES[:-1]:
        found = list(family.findings(failure))
        if found:
            yield from found
            break
    yield from partial.findings(failure)


def silent_findings(examination: Examination) -> Iterator[Finding]:
    """What the rules make of a run as a whole."""
    for family in _RUN_FAMILIES:
        yield from family.findings(examination.events, examination)


def unseen_findings(broken: str, lacks: tuple[str, ...]) -> Iterator[Finding]:
    """What could not be seen, and why."""
    for reason in (*((broken,) if broken else ()), *lacks):
        yield Finding(
            "blind-doctor",
            "info",
            f"the doctor stopped looking ({reason}); later faults were not seen",
            fix="please report it with this line; the training itself was left alone",
        )


RULES["blind-doctor"] = Rule("blind-doctor", "The doctor itself failed, or torch has changed.")
RULES["twin-factor"] = Rule("twin-factor", "A hand-written derivative forgets a factor.")
