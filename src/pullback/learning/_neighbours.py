"""Rows arranged so that near ones lie together, and pairs of rows at a ladder of distances.

A k-d tree by repeated median splits: after s splits, blocks of N/2ˢ consecutive rows are boxes in
x. Pairs within a block are near; pairs across the blocks of one parent are about twice to four
times as far. Everything is array arithmetic: 8,192 rows take some ten milliseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

SMALLEST_LEAF = 8
NEIGHBOURS = 3
# Up to here the nearest rows are sought among all rows, above it within a leaf.
EXACT_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows at one distance.

    Attributes:
        a, b: positions of the two rows, [P].
        block: rows in the block that both lie in.
        mates_a, mates_b: the nearest other rows of each end, never an end of the pair; -1 where a
            neighbour was the other end; [P, 3].
    """

    a: Ints
    b: Ints
    block: int
    mates_a: Ints
    mates_b: Ints


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Rows in tree order.

    Attributes:
        order: row numbers, [n]; a few rows are left out so that n = leaf · 2ˢ.
        x: the rows in that order, each column in units of its spread, [n, D].
        leaf: rows in the smallest block.
        nearest: positions of the nearest rows, with many rows of those within the leaf, [n, 3].
    """

    order: Ints
    x: Floats
    leaf: int
    nearest: Ints

    @property
    def blocks(self) -> list[int]:
        """Block sizes, smallest first, by factors of four, the last the whole."""
        sizes = [self.leaf]
        while sizes[-1] < len(self.order):
            sizes.append(min(4 * sizes[-1], len(self.order)))
        return sizes

    def pairs(self, rng: np.random.Generator) -> Iterator[Pairs]:
        """Pairs at growing distance: nearest neighbours first, then across ever larger blocks."""
        yield self._nearest_pairs()
        smaller = self.leaf
        for block in self.blocks[1:]:
            yield self._pairs_across(smaller, block, rng)
            smaller = block

    def _nearest_pairs(self) -> Pairs:
        n = len(self.order)
        a = np.repeat(np.arange(n), 2)
        b = self.nearest[:, :2].ravel()
        code = np.unique(np.minimum(a, b) * n + np.maximum(a, b))
        return self._with_mates(code // n, code % n, self.leaf)

    def _pairs_across(self, smaller: int, block: int, rng: np.random.Generator) -> Pairs:
        """Each row with one of the next sibling block, at a random place in it."""
        n = len(self.order)
        shuffled = rng.permuted(np.arange(n).reshape(-1, smaller), axis=1)
        siblings = shuffled.reshape(n // block, block // smaller, smaller)
        a, b = siblings.ravel(), np.roll(siblings, 1, axis=1).ravel()
        if block == 2 * smaller:  # the next of the next is the block itself: each pair came twice
            keep = np.broadcast_to(np.arange(block // smaller)[:, None] == 0, siblings.shape[1:])
            keep = np.broadcast_to(keep, siblings.shape).ravel()
            a, b = a[keep], b[keep]
        return self._with_mates(a, b, block)

    def _with_mates(self, a: Ints, b: Ints, block: int) -> Pairs:
        mates_a = np.where(self.nearest[a] == b[:, None], -1, self.nearest[a])
        mates_b = np.where(self.nearest[b] == a[:, None], -1, self.nearest[b])
        return Pairs(a, b, block, mates_a, mates_b)


def neighbourhood(x: Floats, importance: Floats) -> Neighbourhood:
    """Arrange the rows of x [N, D], no two of them equal and no column constant; N at least 8.

    `importance` [D] weighs the columns, in units of their spread, in the distance between rows.
    """
    n = len(x)
    splits = max(0, int(np.log2(n / SMALLEST_LEAF)))
    leaf = n >> splits
    # The rows left out are spread evenly, so that sorted data lose no end.
    kept = np.linspace(0, n - 1, leaf << splits).round().astype(np.intp)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    weighed = scaled * importance
    order = kept[None, :]
    for _ in range(splits):
        order = _halve(order, weighed)
    order = order.ravel()
    return Neighbourhood(
        order,
        scaled[order],
        leaf,
        _nearest(weighed[order], leaf if len(order) > EXACT_ROWS else len(order)),
    )


def _halve(order: Ints, x: Floats) -> Ints:
    """Split each block [B, L] at the median of its widest column, [2B, L/2]."""
    boxes = x[order]
    widest = np.ptp(boxes, axis=1).argmax(axis=1)
    key = np.take_along_axis(boxes, widest[:, None, None], axis=2)[..., 0]
    ranked = np.take_along_axis(order, key.argsort(axis=1, kind="stable"), axis=1)
    return ranked.reshape(2 * len(order), -1)


def _nearest(x: Floats, among: int) -> Ints:
    """The nearest rows to each in its block of `among`, nearest first, [n, 3]."""
    boxes = x.reshape(-1, among, x.shape[1])
    squared = (boxes**2).sum(axis=2)
    distance = squared[:, :, None] + squared[:, None, :] - 2.0 * boxes @ boxes.transpose(0, 2, 1)
    distance[:, np.arange(among), np.arange(among)] = np.inf
    near = np.argpartition(distance, NEIGHBOURS, axis=2)[:, :, :NEIGHBOURS]
    ranks = np.take_along_axis(distance, near, axis=2).argsort(axis=2, kind="stable")
    near = np.take_along_axis(near, ranks, axis=2)
    return (near + among * np.arange(len(boxes))[:, None, None]).reshape(-1, NEIGHBOURS)
