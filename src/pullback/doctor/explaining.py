"""The page of each rule."""

from importlib.resources import files

from pullback.doctor.rules import RULES
from pullback.errors import InputError


def explain(rule: str) -> str:
    """The page of a rule, in Markdown, with a minimal example.

    Raises:
        InputError: no such rule; the message names those that there are.

    >>> explain("carried-state").splitlines()[0]
    '# carried-state'
    """
    if rule not in RULES:
        raise InputError(f"explain: no rule {rule!r}; there are {', '.join(sorted(RULES))}")
    return files("pullback.doctor").joinpath("pages", f"{rule}.md").read_text(encoding="utf-8")
