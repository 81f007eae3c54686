"""Recording: what each backward reached, before the engine frees it."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer

from pullback.doctor import _torch
from pullback.doctor.examination import Examination
from pullback.doctor.failing import diagnose_failure
from pullback.doctor.findings import Findings
from pullback.doctor.gate import close_gate, open_gate
from pullback.doctor.lines import Lines
from pullback.doctor.operations import OperationWatch
from pullback.doctor.owners import Held, held
from pullback.doctor.records import Backward, Turn
from pullback.doctor.rules import failure_findings, silent_findings, unseen_findings
from pullback.doctor.sites import Site, caller, locate, site_of, user_frame, user_frames
from pullback.doctor.walk import Walk, walk

_EXAMINED = 4  # passes that are looked at closely; nearly every fault shows in the second
_REMEMBERED = 256  # trips
_STARTS = 10_000  # passes
_NOTHING: frozenset[int] = frozenset()


class Call(NamedTuple):
    """A backward under way: holds nodes, so it lives no longer than the call."""

    backward: Backward
    walked: Walk | None
    roots: list[tuple[Any, int]]
    outputs: tuple[Any, ...]
    frame: FrameType | None
    start: int

    @property
    def found(self) -> Walk:
        """What it reached in this pass."""
        return self.walked or walk([node for node, _ in self.roots], self.start)


class ThreadRecord(threading.local):
    """What is known of one thread; sequence numbers are counted by thread."""

    def __init__(self) -> None:
        self.turn = Turn(0, 0)
        self.turns: deque[Turn] = deque([self.turn], maxlen=8)
        self.starts: deque[int] = deque([0], maxlen=_STARTS)
        self.calls: set[int] = set()
        self.backwards: deque[Backward] = deque(maxlen=_REMEMBERED)
        self.steps: deque[Site] = deque(maxlen=16)
        self.step_count = 0
        self.count = 0
        self.several = True
        self.end = 0
        self.inside = False

    def turn_of(self, sequence: int) -> int:
        """The pass in which the node of this number was made."""
        made = bisect_right(self.starts, sequence)
        return max(self.turn.number - len(self.starts) + made, 0)


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A doctor that fails says so and lets the training go on."""

    @wraps(method)
    def guarded(self: "Recorder", *arguments: Any) -> Any:
        if self.broken:
            return None
        try:
            if not _torch.modes():
                return method(self, *arguments)
            with _torch.unheard():
                return method(self, *arguments)
        except Exception as error:
            self.broken = f"{method.__name__}: {type(error).__name__}: {error}"
            return None

    return guarded


class Recorder:
    """Records the backwards of all threads, and the lines of the thread that opened it.

    Args:
        findings: where findings go.
        full: record which source line made which node.
    """

    def __init__(self, findings: Findings, *, full: bool) -> None:
        self.findings = findings
        self.full = full
        self.broken = ""
        self.record = ThreadRecord()
        self.lines = Lines()
        self.examination = Examination(self.lines)
        self.watch: OperationWatch | None = None
        self._sites: dict[tuple[Any, int], Site] = {}
        self._home = threading.get_ident()
        self._lacks = _torch.missing_features()

    def open(self) -> None:
        """Start to record."""
        self.record.end = self.record.turn.start = _torch.next_sequence()
        self.record.starts = deque([self.record.end], maxlen=_STARTS)
        if self.full:
            self.watch = OperationWatch(self.lines, self.examination, self.site)
            self.watch.__enter__()
        self._open_gate()

    @_guarded
    def _open_gate(self) -> None:
        open_gate(self)

    def close(self) -> None:
        """Stop, give back what was patched, and judge the run as a whole."""
        close_gate(self)
        if self.watch is not None:
            self.watch.__exit__(None, None, None)
            if self.watch.broken:
                self.broken = self.broken or self.watch.broken
        self._finish()
        for finding in unseen_findings(self.broken, self._lacks):
            self.findings.add(finding)

    @_guarded
    def _finish(self) -> None:
        self.examination.finish(held(user_frames(caller())))
        for finding in silent_findings(self.examination):
            self.findings.add(finding)

    def site(self, frame: FrameType | None) -> Site:
        """The site of a frame, built once for each instruction."""
        if frame is None:
            return site_of(None)
        key = (frame.f_code, frame.f_lasti)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = site_of(frame)
        return site

    @_guarded
    def before(self, outputs: Any, arguments: tuple[Any, ...], accumulate: bool) -> Call | None:
        """Record what a backward reaches; open a new pass when its call repeats."""
        record = self.record
        if record.inside:  # a backward inside a backward, as in reentrant checkpointing
            return None
        outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        retain, create = bool(arguments[1]), bool(arguments[2])
        frame, mark = locate(caller())
        roots = _torch.roots_of(outputs)
        numbers = frozenset([_torch.sequence_of(node) for node, _ in roots])
        newest = max(numbers, default=record.end)
        # A loss made before the last backward belongs to the same pass, even in a loop.
        fresh = newest >= record.end
        if fresh and mark in record.calls and (accumulate or not retain):
            self._new_pass(record)
        record.calls.add(mark)
        examined = self._examines(record)
        # Once a loop has shown one backward a pass, everything up to its root is that pass; the
        # exact walk is then put off until something fails, since the graph outlives the engine.
        exact = examined or record.several
        found = walk([node for node, _ in roots], record.turn.start) if exact else None
        backward = Backward(
            record.count,
            record.turn.number,
            self.site(frame),
            not accumulate,
            retain,
            create,
            frozenset(found.nodes.values())
            if found is not None
            else range(record.turn.start, newest + 1),
            frozenset([_torch.sequence_of(edge.producer) for edge in found.below])
            if found is not None
            else _NOTHING,
            numbers,
            record.step_count,
            frozenset([id(_torch.variable_of(leaf)) for leaf in found.leaves])
            if found is not None and examined
            else _NOTHING,
        )
        record.count += 1
        record.inside = True  # also the doctor's own backwards are not looked at
        if examined and found is not None:
            here = held(user_frames(frame))
            record.turn.names.update(here.names())
            record.turn.lengths = here.lengths
            if self._is_home():
                self.examination.backward(backward, found, roots, here, record.turn)
        return Call(backward, found, roots, outputs, frame, record.turn.start)

    def _examines(self, record: ThreadRecord) -> bool:
        # A graph that reaches back is worth a closer look, whenever it first does.
        return record.turn.number < _EXAMINED or self.examination.evaluating

    def _is_home(self) -> bool:
        return threading.get_ident() == self._home

    def _new_pass(self, record: ThreadRecord) -> None:
        record.several = record.turn.trips != 1
        record.turn = Turn(record.turn.number + 1, record.end)
        record.turns.append(record.turn)
        record.starts.append(record.end)
        record.calls.clear()
        if self._is_home():
            self.examination.new_pass(record.turn, active=record.turn.number < _EXAMINED)

    @_guarded
    def after(self, call: Call | None, gradients: Any) -> None:
        """Note that the engine ran, and number the nodes that it made."""
        if call is None:
            return
        record = self.record
        record.inside = False
        record.backwards.append(call.backward)
        record.turn.trips += 1
        end = _torch.next_sequence()
        if call.backward.closes:
            record.end = end
        if self._is_home():
            if call.backward.create:
                self.lines.add(end, call.backward.site)
            self.examination.ran(call.backward, gradients)

    def failed(self, call: Call | None, error: BaseException) -> None:
        """Diagnose an engine that raised, and hang the findings on the exception."""
        if call is None:
            return
        self.record.inside = False
        if isinstance(error, RuntimeError):
            self._diagnose(call._replace(walked=call.found), error)

    @_guarded
    def _diagnose(self, call: Call, error: RuntimeError) -> None:
        here: Held = held(user_frames(call.frame), budget=50_000)
        failure = diagnose_failure(
            str(error),
            call,
            here,
            self.record,
            self.lines,
            self.examination,
            self.watch.writes if self.watch is not None else {},
            full=self.full,
        )
        if failure is None:
            return
        for finding in failure_findings(failure):
            self.findings.add(finding)
            if finding.rule != "partial-gradients":
                error.add_note(str(finding))

    @_guarded
    def stepped(self, optimizer: Optimizer) -> None:
        """Remember the line of an optimizer step."""
        record = self.record
        record.step_count += 1
        if record.steps and not self._examines(record):
            return  # a loop steps where it stepped before
        record.steps.append(self.site(user_frame(caller())))
        if self._is_home():
            self.examination.stepped(optimizer, record.steps[-1], record.turn.number)

    @_guarded
    def switched(self, training: bool) -> None:
        """Look closely at an evaluation that begins."""
        if self._is_home():
            self.examination.switched(training)
