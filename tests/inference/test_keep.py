"""Graphs kept within a budget, the rest recomputed; the choice is explained."""

import pytest
import torch
from tests.inference.cases import CASES
from tests.inference.references import assert_rows_close
from torch import nn

import pullback.inference as pb
from pullback._torch import saved_bytes
from pullback.errors import ReplayError
from pullback.inference.keep import free_memory

N = 40


@pytest.fixture
def net_and_x():
    return CASES[1].build(N)


def row_bytes(net, x):
    return pb.infer(net, x, batch_size=8, keep=10**9).explain().row_bytes


def test_the_default_keeps_nothing(net_and_x):
    explained = pb.infer(*net_and_x, batch_size=8).explain()
    assert (explained.kept, explained.batches, explained.row_bytes) == (0, 5, None)
    assert "keep='none': graphs are recomputed" in str(explained)


@pytest.mark.parametrize("kept", [0, 1, 3, 5])
def test_as_many_batches_as_the_budget_allows(kept, net_and_x):
    net, x = net_and_x
    want = pb.infer(net, x, batch_size=8).gradient_of(0)
    budget = int(row_bytes(net, x) * 8 * (kept + 0.5))
    run = pb.infer(net, x, batch_size=8, keep=budget)
    explained = run.explain()
    assert explained.kept == kept
    assert explained.kept_bytes <= budget
    assert f"{kept} of 5 batches kept" in str(explained)
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    assert_rows_close(run.gradient_of(0), want, 1e-12)
    assert_rows_close(run.gradient_of(0), want, 1e-12)  # a kept graph may be walked again
    assert len(calls) == 2 * (5 - kept)


def test_few_rows_of_a_kept_batch_are_recomputed(net_and_x):
    net, x = net_and_x
    run = pb.infer(net, x, batch_size=16, keep=10**9)
    calls = []
    net.register_forward_hook(lambda m, args, y: calls.append(len(y)))
    run.gradient_of(0, rows=range(8))
    assert calls == []
    run.gradient_of(0, rows=range(7))
    assert calls == [8]


def test_dropout_in_kept_graphs():
    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5)).double()
    x = torch.randn(N, 5, dtype=torch.float64)
    torch.manual_seed(1)
    want = pb.infer(net, x, batch_size=8).gradient_of(0)
    torch.manual_seed(1)
    run = pb.infer(net, x, batch_size=8, keep=10**9)
    assert run.explain().kept == 5
    assert_rows_close(run.gradient_of(0), want, 1e-12)


def test_coupled_batches_are_recomputed_whatever_was_asked(net_and_x):
    net, x = net_and_x
    run = pb.infer(net.train(), x, batch_size=8, coupled="batch", keep="auto")
    assert run.explain().kept == 0
    assert "whole batches of the first pass" in str(run.explain())


def test_auto_takes_a_share_of_the_free_memory(net_and_x):
    free = free_memory(torch.device("cpu"))
    explained = pb.infer(*net_and_x, batch_size=8, keep="auto").explain()
    assert explained.kept == 5
    assert 0 < explained.budget < max(free, 1) / 2
    assert "a quarter of the free memory of cpu" in explained.keep_reason


def test_saved_bytes_are_those_of_the_activations():
    """tanh saves its result; a linear layer its input, and its weight, which is there anyway."""
    linear = nn.Linear(10, 20)
    x = torch.randn(8, 10).requires_grad_()
    y = torch.tanh(linear(x))
    assert saved_bytes([y]) == 8 * 20 * 4
    assert saved_bytes([torch.tanh(y)]) == 2 * 8 * 20 * 4
    assert saved_bytes([linear(x.clone())]) == 8 * 10 * 4


def test_changed_weights_are_found_with_kept_graphs_too(net_and_x):
    net, x = net_and_x
    run = pb.infer(net, x, keep=10**9)
    net[4].weight.data.mul_(1.0001)
    with pytest.raises(ReplayError, match=r"weights changed since infer \(4\.weight\)"):
        run.gradient_of(0)
