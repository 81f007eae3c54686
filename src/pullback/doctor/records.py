"""What is remembered: strings and integers, never a tensor or a node."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pullback.doctor.sites import Site


class Backward(NamedTuple):
    """One trip through the engine; a tuple, since one is made for every backward.

    Attributes:
        trip: which trip of this thread.
        turn: the pass it belongs to.
        site: the user's line.
        of_grad: whether it was `autograd.grad` and not `backward`.
        retain, create: `retain_graph` and `create_graph`.
        visited: sequence numbers of nodes made in this pass that it reached; in later passes
            with a single backward, the range from the start of the pass to the root.
        under: sequence numbers of older nodes at which it left this pass.
        roots: sequence numbers of its roots.
        steps: optimizer steps taken before it.
        leaves: ids of the leaf tensors reached.
    """

    trip: int
    turn: int
    site: Site
    of_grad: bool
    retain: bool
    create: bool
    visited: frozenset[int] | range
    under: frozenset[int]
    roots: frozenset[int]
    steps: int
    leaves: frozenset[int]

    @property
    def frees(self) -> bool:
        """Whether the engine frees what it visits."""
        return not self.retain

    @property
    def closes(self) -> bool:
        """Whether a pass may end here; a gradient whose graph is kept is only half way."""
        return not (self.of_grad and self.retain)

    @property
    def call(self) -> str:
        """How the call is written."""
        return "autograd.grad()" if self.of_grad else "backward()"


@dataclass(frozen=True)
class Carrier:
    """The tensor through which a backward reached a graph that was gone.

    Attributes:
        path: variable or attribute, or "" when nothing that can be named holds it.
        node, consumer: names of its node and of the node that used it.
        scalar: whether it has no dimensions.
        made, used: the user's lines, when creation lines are recorded.
        turn: pass in which it was made.
        freed: the trip that freed what lies behind it.
        binding: "same" (still bound to the name it had), "rebound" or "moved" (another name).
        lengths: length of the growing container at the trip before and now.
        container: its path.
        was_root: an earlier backward started from it.
        remade: its creation line ran again in this pass.
        own_parameters: whether the new part of the graph reaches leaves of its own.
        dropped_detach: a line that detaches a copy of it and drops the copy.
    """

    path: str
    node: str
    consumer: str
    scalar: bool
    made: Site | None
    used: Site | None
    turn: int
    freed: Backward | None
    binding: str
    lengths: tuple[int, int] | None = None
    container: str = ""
    was_root: bool = False
    remade: bool | None = None
    own_parameters: bool = True
    dropped_detach: str = ""
    holder: str = ""


@dataclass(frozen=True)
class Failure:
    """A backward that raised.

    Attributes:
        kind: "freed", "modified" or "disconnected".
        backward: the trip that raised.
        carriers: what it ran into, the most telling first.
        nodes: how many nodes this pass made.
        steps: lines of the optimizer steps so far, newest last.
        filled: leaf tensors that hold a gradient after the failure, and how many there are.
        modified: path of the tensor changed in place, its kind, and the line that changed it.
        cut: what cut the root off, its line, and the path.
    """

    kind: str
    backward: Backward
    carriers: tuple[Carrier, ...] = ()
    same_root: Backward | None = None
    nodes: int = 0
    steps: tuple[Site, ...] = ()
    filled: tuple[int, int] = (0, 0)
    modified: tuple[str, str, Site | None] = ("", "", None)
    consumer: str = ""
    consumed: Site | None = None
    cut: "Cut | None" = None
    recomputed: bool = False
    lines: bool = True


@dataclass(frozen=True)
class Cut:
    """A value that left the graph: detach, .data, .item(), no_grad, grad without create_graph."""

    kind: str
    site: Site
    turn: int
    source: int
    leaf: str = ""
    scalar: bool = False
    leaves: int = 0
    reached: tuple[str, ...] = ()


@dataclass
class Turn:
    """One pass of a training loop."""

    number: int
    start: int
    trips: int = 0
    names: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
