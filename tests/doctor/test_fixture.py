"""The pytest fixture."""

import pytest
import torch

from pullback.doctor.pytest_plugin import graph_doctor
from pullback.errors import GraphFaultError

__all__ = ["graph_doctor"]


def test_the_fixture_watches(graph_doctor):
    torch.ones(3, requires_grad=True).exp().sum().backward()
    assert len(graph_doctor) == 0


def test_the_fixture_fails_a_test_with_a_fault():
    steps = graph_doctor.__wrapped__()
    next(steps)
    w = torch.ones(3, requires_grad=True)
    for _ in range(3):
        (w.pow(2).sum() + w.exp().sum().detach()).backward()
    with pytest.raises(GraphFaultError, match="dead-term"):
        next(steps)
