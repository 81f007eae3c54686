"""The close look at the first passes: cuts, unused operations, idle steps, growth."""

from types import FrameType
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from pullback.doctor import _torch
from pullback.doctor.cuts import Cuts
from pullback.doctor.events import Event, Events
from pullback.doctor.growth import Growth, rate
from pullback.doctor.judging import judge_cuts, judge_retained
from pullback.doctor.lines import Lines
from pullback.doctor.owners import Held, held
from pullback.doctor.records import Backward, Turn
from pullback.doctor.sites import Site, user_frames
from pullback.doctor.standing import Standing
from pullback.doctor.terms import split, terms_of
from pullback.doctor.unused import Unused
from pullback.doctor.walk import Walk

_MOST_TICKS = 40  # looks at what an evaluation holds; layers of one batch may share a line


class Examination:
    """What is noticed while the first passes are looked at closely.

    Args:
        lines: the source lines of nodes, as they become known.
    """

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.events = Events()
        self.cuts = Cuts()
        self.growth = Growth()
        self.unused = Unused()
        self.standing = Standing()
        self.evaluation = Growth()
        self.active = True
        self.evaluating = False
        self.parameters: dict[int, str] = {}
        self._turn = Turn(0, 0)
        self._sums: set[int] = set()
        self._reached: dict[int, set[int]] = {}
        self._examined = True
        self._evaluated: list[int] = []
        self._first_line: Site | None = None
        self._tick = 0

    @property
    def tainted(self) -> bool:
        """Whether values without a graph are being followed."""
        return bool(self.cuts.tainted)

    def operation(
        self,
        kind: str,
        args: Any,
        kwargs: Any,
        result: Any,
        site: Site,
        start: int,
        end: int,
        frame: FrameType | None,
    ) -> None:
        """See one operation that has run."""
        if kind in ("in-place", "detach_") and args and isinstance(args[0], Tensor):
            cut = self.cuts.cut_of(args[0])
            if cut is not None and cut.kind == "data" and cut.leaf and end > start:
                self.events.add(Event("update-through-data", site), self._turn.number)
        self.cuts.operation(kind, args, kwargs, result, site, start, end, self._turn.number)
        self.unused.operation(kind, args, kwargs, result, site, start, end, self.evaluating)
        if self.evaluating and end > start:
            self._evaluate(site, start, frame)

    def _evaluate(self, site: Site, start: int, frame: FrameType | None) -> None:
        self._evaluated.append(start)
        if self._first_line is None:
            self._first_line = site
        elif site == self._first_line and self._tick < _MOST_TICKS:
            self._tick += 1
            here = held(user_frames(frame))
            self.evaluation.sample(here, start, self._tick, repeats=False)

    def switched(self, training: bool) -> None:
        """A module went to training or to evaluation."""
        if training:
            self._end_evaluation()
        elif not self.evaluating:
            self.evaluating = self.active = True
            self._evaluated, self._first_line, self._tick = [], None, 0
            self.evaluation = Growth()

    def _end_evaluation(self) -> None:
        if self.evaluating and self._evaluated and self._first_line is not None:
            growing = self.evaluation.growing()
            paths = tuple(path for path, *_ in growing[:1])
            event = Event("evaluation", self._first_line, path=paths[0] if paths else "")
            numbers: dict[str, float] = {"operations": len(self._evaluated)}
            if growing:
                numbers["kib_per_pass"] = rate(growing[0][2])[0]
            self.events.add(event, self._turn.number, **numbers)
        self.evaluating = False
        self.active = self._examined
        self._evaluated = []

    def backward(
        self, backward: Backward, found: Walk, roots: list[tuple[Any, int]], here: Held, turn: Turn
    ) -> None:
        """A backward is about to run."""
        if self.evaluating:
            if not set(self._evaluated).isdisjoint(backward.visited):
                self._evaluated = []
            self._end_evaluation()
        self.parameters.update(here.parameters)
        self.growth.sample(here, turn.start, turn.number)
        for reached in self._reached.values():
            reached.update(backward.leaves)
        for node, number in roots:
            if node in found.nodes and not backward.of_grad:
                sums, summands = split(node, number)
                self._sums |= sums
                self._look_at_terms(list(terms_of(summands, turn.start)), found, backward)
        self._look_at_leaves(found, backward)
        self._look_at_functions(found, backward)
        self.standing.backward(backward, found, here)

    def _look_at_terms(self, terms: list[Any], found: Walk, backward: Backward) -> None:
        whole = {id(_torch.variable_of(leaf)) for leaf in found.leaves}
        for term in terms:
            if term.is_blind:
                self._measure(term, backward)
            own = {id(v): v for n in term.leaves if (v := _torch.variable_of(n)) is not None}
            gates = [
                use
                for use in self.cuts.uses
                if use.cut.kind == "comparison"
                and not use.gates_source
                and any(use.start <= s < use.end for s in term.nodes.values())
            ]
            missing = whole - set(own)
            others = [v for n in found.leaves if (v := _torch.variable_of(n)) is not None]
            biases = [v for v in others if id(v) in missing and v.dim() <= 1]
            weights = [v for v in own.values() if v.dim() >= 2]
            if (
                gates
                and len(biases) >= 2
                and len(weights) >= 2
                and not any(v.dim() <= 1 for v in own.values())
            ):
                names = tuple(sorted(self.parameters.get(id(v), "a bias") for v in biases))
                event = Event("blind", gates[0].cut.site, path="labels", detail=names)
                self.events.add(event, backward.turn, tensors=len(biases))

    def _measure(self, term: Any, backward: Backward) -> None:
        if any(_torch.is_custom(node) for node in term.nodes):
            return  # its backward is the user's code: not ours to run once more
        variables = [v for n in term.leaves if (v := _torch.variable_of(n)) is not None]
        gradients = _torch.gradients_of_edge(term.node, term.number, variables)
        zero = [
            self.parameters.get(id(v), "a parameter")
            for v, g in zip(variables, gradients, strict=True)
            if g is not None and v.dim() <= 1 and not bool(g.any())
        ]
        if zero:
            site = self.lines.of(_torch.sequence_of(term.node)) or backward.site
            path = "labels" if term.matches_labels else "penalty"
            event = Event("blind", site, path=path, detail=tuple(sorted(zero)))
            self.events.add(event, backward.turn, tensors=len(zero))

    def _look_at_leaves(self, found: Walk, backward: Backward) -> None:
        for leaf in found.leaves:
            variable = _torch.variable_of(leaf)
            if variable is not None and variable.grad is not None and variable.grad.requires_grad:
                path = self.parameters.get(id(variable), "a parameter")
                self.events.add(Event("gradient-graph", backward.site, path), backward.turn)

    def _look_at_functions(self, found: Walk, backward: Backward) -> None:
        for node in found.nodes:
            if _torch.is_custom(node):
                for name, value in list(vars(node).items()):
                    if isinstance(value, Tensor) and value.grad_fn is node:
                        path = f"{type(node).__name__.removesuffix('Backward')}: ctx.{name}"
                        site = self.lines.of(found.nodes[node]) or backward.site
                        self.events.add(Event("output-on-ctx", site, path), backward.turn)

    def ran(self, backward: Backward, gradients: Any) -> None:
        """A backward has run."""
        if self.active:
            self.standing.ran(backward)
            self.cuts.gradients(gradients, backward)

    def new_pass(self, turn: Turn, *, active: bool) -> None:
        """A pass ended and another one begins; its operations have already run."""
        if self.active:
            self.judge()
        self._turn = turn
        self._examined = active
        self.active = active or self.evaluating

    def judge(self) -> None:
        """Judge what the passes so far have left."""
        visited = self.standing.take()
        judge_cuts(self.cuts, visited, self.standing.end, self._sums, self.parameters, self.events)
        judge_retained(self.standing, self.events)
        self.unused.judge(visited, self.standing.end, self.events)

    def stepped(self, optimizer: Optimizer, site: Site, turn: int) -> None:
        """An optimizer stepped: did any backward reach what it trains?"""
        if not self.active:
            return
        reached = self._reached.get(id(optimizer))
        everything = reached if reached is not None else self.standing.leaves
        self._reached[id(optimizer)] = set()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        idle = all(id(p) not in everything for p in parameters) and all(
            p.grad is None or not bool(p.grad.any()) for p in parameters
        )
        if idle and parameters:
            path = self.parameters.get(id(parameters[0]), "")
            owner = path.partition(".")[0] if "." in path else path
            self.events.add(Event("idle-step", site, owner), turn, tensors=len(parameters))

    def finish(self, here: Held) -> None:
        """The run is over."""
        self._end_evaluation()
        self.growth.sample(here, _torch.next_sequence(), self._turn.number + 1)
        self.judge()
        self.standing.finish(self.events)
