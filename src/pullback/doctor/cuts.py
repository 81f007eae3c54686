"""Values that leave the graph, and where they come back into it."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pullback.doctor import _torch
from pullback.doctor.records import Backward, Cut
from pullback.doctor.sites import Site
from pullback.doctor.walk import walk


class Use(NamedTuple):
    """An operation with a graph that used a value without one."""

    cut: Cut
    site: Site
    start: int
    end: int
    kind: str
    scalar: bool
    gates_source: bool


def tensors_in(args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Tensors among the arguments, also inside one list or tuple."""
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, Tensor))


class Cuts:
    """Follows cut values through one pass by weak references; keeps none alive."""

    def __init__(self) -> None:
        self.tainted: dict[int, tuple[Any, Cut]] = {}
        self.uses: list[Use] = []
        self.reads: dict[tuple[str, int], Cut] = {}
        self._about_to: int | None = None
        self.leaf_ids: dict[int, tuple[int, ...]] = {}

    def cut_of(self, tensor: Tensor) -> Cut | None:
        """Where this tensor, or what it was computed from, left the graph."""
        entry = self.tainted.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def taint(self, result: Any, cut: Cut) -> None:
        """Mark a result as computed from a cut value."""
        for tensor in tensors_in((result,), None):
            if not tensor.requires_grad:
                self.tainted[id(tensor)] = (weakref.ref(tensor), cut)

    def about_to_detach(self, tensor: Tensor) -> None:
        """Look at what `detach_` is about to cut off: afterwards it is gone."""
        if tensor.grad_fn is not None:
            source = _torch.sequence_of(tensor.grad_fn)
            found = walk([tensor.grad_fn], limit=5000)
            self.leaf_ids[source] = tuple(id(_torch.variable_of(n)) for n in found.leaves)
            self._about_to = source

    def operation(
        self,
        kind: str,
        args: Any,
        kwargs: Any,
        result: Any,
        site: Site,
        start: int,
        end: int,
        turn: int,
    ) -> None:
        """See one operation that has run."""
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if kind in ("detach", "data", "comparison", "read", "detach_") and first is not None:
            self._cut(kind, first, result, site, turn)
        elif end > start:
            self._use(kind, args, kwargs, site, start, end)
        else:
            self._pass_on(args, kwargs, result, site, turn)

    def _cut(self, kind: str, first: Tensor, result: Any, site: Site, turn: int) -> None:
        if kind == "detach_":
            if self._about_to is None:
                return
            source, leaf = self._about_to, False
            self._about_to = None
        elif first.requires_grad:
            leaf = first.grad_fn is None
            source = -1 if leaf else _torch.sequence_of(first.grad_fn)
        else:
            earlier = self.cut_of(first)
            if earlier is not None:
                self.taint(result, earlier)
            return
        cut = Cut(kind, site, turn, source, leaf="leaf" if leaf else "", scalar=first.dim() == 0)
        if kind == "read":
            self.reads[(site.file, site.line)] = cut
        self.taint(result, cut)

    def _use(self, kind: str, args: Any, kwargs: Any, site: Site, start: int, end: int) -> None:
        tensors = list(tensors_in(args, kwargs))
        for tensor in tensors:
            cut = self.cut_of(tensor)
            if cut is not None:
                others = (
                    {_torch.sequence_of(t.grad_fn) for t in tensors if t.grad_fn is not None}
                    if cut.kind == "comparison"
                    else set()
                )
                self.uses.append(
                    Use(cut, site, start, end, kind, tensor.dim() == 0, cut.source in others)
                )
        read = self.reads.get((site.file, site.line))
        if read is not None and kind == "sum" and any(type(a) is float for a in args):
            self.uses.append(Use(read, site, start, end, kind, True, False))

    def _pass_on(self, args: Any, kwargs: Any, result: Any, site: Site, turn: int) -> None:
        if not isinstance(result, Tensor | tuple | list):
            return
        cut = next((c for t in tensors_in(args, kwargs) if (c := self.cut_of(t))), None)
        if cut is None and not torch.is_grad_enabled():
            source = next((t for t in tensors_in(args, kwargs) if t.requires_grad), None)
            # What is written in place under no_grad is an update, not a value.
            if source is None or any(result is t for t in tensors_in(args, kwargs)):
                return
            cut = Cut("no_grad", site, turn, -2)
        if cut is not None:
            self.taint(result, cut)

    def gradients(self, gradients: Any, backward: Backward) -> None:
        """Gradients taken without create_graph are constants."""
        if backward.of_grad and not backward.create:
            cut = Cut("grad", backward.site, backward.turn, -2)
            self.taint(gradients, cut)

    def forget(self, end: int) -> None:
        """Drop what was judged; values that live on stay marked."""
        self.tainted = {key: entry for key, entry in self.tainted.items() if entry[0]() is not None}
        self.uses = [use for use in self.uses if use.start >= end]
        self.leaf_ids = {source: ids for source, ids in self.leaf_ids.items() if source >= end}

    def named(self, cut: Cut, names: dict[int, str]) -> Cut:
        """The cut with the names of the parameters that it cut off, equal in every pass."""
        ids = self.leaf_ids.get(cut.source, ())
        reached = tuple(sorted(names[i] for i in ids if i in names))
        # Without pass and number, so that the same cut in the next pass counts as the same.
        return replace(cut, turn=0, source=0, leaves=len(ids), reached=reached)
