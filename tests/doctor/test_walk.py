"""The walk: deep, shared, released graphs; floors and limits."""

import gc
import weakref

import torch

from pullback.doctor._torch import sequence_of
from pullback.doctor.walk import walk


def _by_recursion(node, floor, seen):
    """The obvious oracle, for small graphs."""
    for child, _ in node.next_functions:
        if child is None or child in seen or not floor <= sequence_of(child) < 2**63:
            continue
        seen[child] = None
        _by_recursion(child, floor, seen)
    return seen


def test_diamond_visits_each_node_once_as_recursion_does():
    x = torch.ones(3, requires_grad=True)
    a = x.exp()
    y = (a.sin() * a.cos() + a).sum()
    found = walk([y.grad_fn])
    assert set(found.nodes) == set(_by_recursion(y.grad_fn, 0, {y.grad_fn: None}))
    assert len(found.leaves) == 1
    assert found.complete


def test_chain_of_five_thousand_nodes():
    x = torch.ones((), requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    assert len(walk([y.grad_fn]).nodes) == 5000


def test_floor_stops_and_reports_the_edge():
    x = torch.ones(3, requires_grad=True)
    old = x.exp()
    new = (old * 2).sum()
    found = walk([new.grad_fn], floor=sequence_of(old.grad_fn) + 1)
    assert len(found.nodes) == 2
    (edge,) = found.below
    assert edge.producer is old.grad_fn
    assert edge.consumer.name().startswith("Mul")


def test_limit_is_reported():
    y = torch.ones((), requires_grad=True)
    for _ in range(50):
        y = y + 1
    found = walk([y.grad_fn], limit=10)
    assert not found.complete
    assert len(found.nodes) == 10


def test_released_graph_can_be_walked():
    x = torch.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    assert len(walk([y.grad_fn]).nodes) == 2


def test_nothing_is_kept():
    x = torch.ones(3, requires_grad=True)
    y = x.exp().sum()
    ref = weakref.ref(y)
    walk([y.grad_fn])
    del y
    gc.collect()
    assert ref() is None
