"""One iterative walk over a graph; it knows nothing of the question."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pullback.doctor._torch import LEAF, sequence_of


class Edge(NamedTuple):
    """A consumer, the node that it consumes, and which output of it."""

    consumer: Any
    producer: Any
    number: int


class Walk(NamedTuple):
    """What was reached: holds nodes, so it lives no longer than the call that made it.

    Attributes:
        nodes: each visited node with its sequence number.
        below: edges that lead under the floor; what lies behind them was not visited.
        leaves: AccumulateGrad nodes.
        complete: False when the limit stopped the walk.
    """

    nodes: dict[Any, int]
    below: list[Edge]
    leaves: dict[Any, None]
    complete: bool


def walk(roots: Iterable[Any], floor: int = 0, limit: int = 1_000_000) -> Walk:
    """Visit every node made at or after `floor` that the roots reach, each once.

    Args:
        roots: nodes to start from; they are visited even when they lie under the floor.
        floor: the smallest sequence number to visit.
        limit: stop after this many nodes.
    """
    nodes: dict[Any, int] = {}
    below: list[Edge] = []
    leaves: dict[Any, None] = {}
    stack = []
    for root in roots:
        if sequence_of(root) >= LEAF:
            leaves[root] = None
        elif root not in nodes:
            nodes[root] = sequence_of(root)
            stack.append(root)
    while stack:
        node = stack.pop()
        for child, number in node.next_functions:
            if child is None or child in nodes:
                continue
            sequence = sequence_of(child)
            if sequence >= LEAF:
                leaves[child] = None
            elif sequence < floor:
                below.append(Edge(node, child, number))
            elif len(nodes) >= limit:
                return Walk(nodes, below, leaves, False)
            else:
                nodes[child] = sequence
                stack.append(child)
    return Walk(nodes, below, leaves, True)


def base_name(node: Any) -> str:
    """The operation behind a node: "Tanh" for TanhBackward0, "T" for TBackward0."""
    name: str = node.name().partition("::")[0]
    return name.rpartition("Backward")[0] or name


def consumers_of(found: Walk) -> Iterable[Edge]:
    """Every edge between two visited nodes."""
    for node in found.nodes:
        for child, number in node.next_functions:
            if child in found.nodes:
                yield Edge(node, child, number)
