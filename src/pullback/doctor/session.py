"""The doctor as a context manager."""

from types import TracebackType

from pullback.doctor.findings import SEVERITIES, Findings
from pullback.doctor.recorder import Recorder
from pullback.errors import GraphFaultError, InputError

LEVELS = ("light", "full")


class doctor:
    """Watch the autograd graphs of a block of code and say what is wrong with them.

    When a backward fails, the findings are added as notes below torch's own error, whose type
    and text stay as they are. When the block ends, faults that raise nothing are added.

    Args:
        level: "light" is cheap enough to leave on; "full" also records which line made what.
        raise_on: raise `GraphFaultError` at the end of the block if anything this grave was
            found: "info", "warning" or "error". An exception of the block itself goes first.

    Raises:
        InputError: an unknown level or severity.
        GraphFaultError: at the end of the block, see `raise_on`.

    >>> import torch
    >>> w = torch.ones(3, requires_grad=True)
    >>> h = torch.ones(3)
    >>> with doctor() as findings:
    ...     try:
    ...         for _ in range(2):
    ...             h = torch.tanh(w * h)
    ...             h.sum().backward()
    ...     except RuntimeError:
    ...         pass
    >>> findings[0].rule, findings[0].path
    ('carried-state', 'h')
    """

    def __init__(self, *, level: str = "full", raise_on: str | None = None) -> None:
        if level not in LEVELS:
            raise InputError(f"doctor: level must be 'light' or 'full' (got {level!r})")
        if raise_on is not None and raise_on not in SEVERITIES:
            raise InputError(f"doctor: raise_on must be one of {SEVERITIES} (got {raise_on!r})")
        self.level = level
        self.raise_on = raise_on
        self.findings = Findings()
        self._recorders: list[Recorder] = []

    def __enter__(self) -> Findings:
        """Start to watch."""
        recorder = Recorder(self.findings, full=self.level == "full")
        recorder.open()
        self._recorders.append(recorder)
        return self.findings

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and raise if something too grave was found."""
        self._recorders.pop().close()
        if error is None and self.raise_on is not None:
            grave = self.findings.at_least(self.raise_on)
            if grave:
                text = "\n\n".join(str(finding) for finding in grave)
                raise GraphFaultError(f"doctor: {len(grave)} finding(s)\n{text}")
