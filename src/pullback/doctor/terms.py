"""The terms of a loss: what its last sums add up, and which leaves each of them reaches."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pullback.doctor import _torch
from pullback.doctor.walk import base_name, walk

_ARITHMETIC = frozenset(
    ("Add", "Sub", "Mul", "Div", "Neg", "Stack", "Cat", "Select", "Unsqueeze", "ToCopy")
)
# Derivatives of the derivative of a piecewise-linear activation: zero wherever they are defined.
_BLIND = ("ThresholdBackwardBackward", "LeakyReluBackwardBackward", "HardtanhBackwardBackward")
# What compares a derivative with its label; a norm below it makes it a penalty instead.
_COMPARES = ("Sub", "MseLoss", "SmoothL1Loss", "HuberLoss")
_REDUCES = ("LinalgVectorNorm", "Norm", "Sqrt", "Sum", "Mean")


class Term(NamedTuple):
    """One summand: its node and output, what it is made of, the leaf nodes it reaches."""

    node: Any
    number: int
    nodes: dict[Any, int]
    leaves: dict[Any, None]

    @property
    def is_blind(self) -> bool:
        """Whether it holds the derivative of a piecewise-linear activation."""
        return any(node.name().startswith(_BLIND) for node in self.nodes)

    @property
    def matches_labels(self) -> bool:
        """Whether derivatives are compared entry by entry, as labels are."""
        return any(
            base_name(node) in _COMPARES
            and any(
                child is not None and base_name(child) not in _REDUCES
                for child, _ in node.next_functions
            )
            for node in self.nodes
        )


def split(root: Any, number: int) -> tuple[set[int], list[tuple[Any, int]]]:
    """Numbers of the nodes that only add up, and the summands below them."""
    sums: set[int] = set()
    summands: list[tuple[Any, int]] = []
    stack = [(root, number)]
    while stack:
        node, at = stack.pop()
        children = [(c, n) for c, n in node.next_functions if c is not None]
        inner = [c for c in children if _torch.sequence_of(c[0]) < _torch.LEAF]
        name = base_name(node)
        adds = name in _ARITHMETIC and (len(inner) == 1 or name not in ("Mul", "Div"))
        reduces = name in ("Sum", "Mean") and any(
            base_name(c) in ("Stack", "Cat") for c, _ in inner
        )
        if (adds or reduces) and inner and len(sums) < 200 and _torch.is_small(node):
            sums.add(_torch.sequence_of(node))
            stack.extend(inner)
        else:
            summands.append((node, at))
    return sums, summands


def terms_of(summands: list[tuple[Any, int]], floor: int) -> Iterator[Term]:
    """Each summand with what it reaches."""
    for node, number in summands:
        found = walk([node], floor)
        yield Term(node, number, found.nodes, found.leaves)
