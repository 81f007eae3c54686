"""The context managers that this part needs: state is given back, after an exception and nested."""

import pytest
import torch
from torch import nn

from pullback._state import gradients_kept_on_error, kept_buffers
from pullback.inference.randomness import kept_streams, random_state

CPU = torch.device("cpu")


def test_gradients_stay_when_all_goes_well():
    weight = torch.ones(2, requires_grad=True)
    with gradients_kept_on_error([weight]):
        weight.sum().backward()
    assert (weight.grad == 1).all()


def test_gradients_come_back_when_it_raises():
    fresh, held = (torch.ones(2, requires_grad=True) for _ in range(2))
    held.grad = first = torch.full((2,), 3.0)

    @gradients_kept_on_error([fresh, held])
    def stopped():
        (fresh.sum() + held.sum()).backward()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert fresh.grad is None
    assert held.grad is first
    assert (first == 3).all()


def test_gradients_nest():
    weight = torch.ones(2, requires_grad=True)

    @gradients_kept_on_error([weight])
    def failing():
        weight.sum().backward()
        with gradients_kept_on_error([weight]):
            weight.sum().backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert weight.grad is None


def test_buffers_come_back_written_to_or_replaced():
    norm = nn.BatchNorm1d(2)
    mean, count = norm.running_mean, norm.num_batches_tracked

    @kept_buffers(nn.Sequential(norm))
    def failing():
        norm(torch.randn(8, 2))
        norm.num_batches_tracked = torch.tensor(7)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert norm.running_mean is mean
    assert (mean == 0).all()
    assert norm.num_batches_tracked is count
    assert count == 0


def test_streams_come_back():
    before = random_state(CPU)

    @kept_streams(CPU)
    def failing():
        torch.rand(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert random_state(CPU).same_as(before)
    torch.rand(1)
    assert not random_state(CPU).same_as(before)
