"""Afterwards everything is as after plain inference, also when something raises."""

import gc
import random
import weakref

import numpy as np
import pytest
import torch
from tests.inference.cases import CASES
from torch import nn

import pullback.inference as pb
from pullback.errors import InputError

N = 20


def everything_done(net, x, **options):
    run = pb.infer(net, x, batch_size=8, **options)
    run.outputs.square().sum().backward()
    run.input_gradients()
    run.pick([1, 2], torch.sum).gradients.sum()
    run.gradient_of(0)
    run.pull([0], torch.ones_like(run.outputs[:1].detach()))
    return run


def state_of(net, x):
    tensors = [x, *net.parameters(), *net.buffers()]
    return (
        [t.detach().clone() for t in tensors],
        [t.requires_grad for t in tensors],
        [t.grad for t in tensors],
        [part.training for part in net.modules()],
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),
        random.getstate(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        [len(part._forward_hooks) + len(part._backward_hooks) for part in net.modules()],
        torch.is_autocast_enabled("cpu"),
    )


@pytest.mark.parametrize("keep", ["none", 10**9], ids=["recomputed", "kept"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_changes(case, keep):
    net, x = case.build(N)
    before = state_of(net, x)
    everything_done(net, x, keep=keep)
    after = state_of(net, x)
    assert all(torch.equal(s, t) for s, t in zip(before[0], after[0], strict=True))
    assert before[1:] == after[1:]


def test_random_streams_are_as_after_plain_inference():
    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    x = torch.randn(N, 5, dtype=torch.float64)
    torch.manual_seed(7)
    with torch.no_grad():
        for part in x.split(8):
            net(part)
    plain = torch.get_rng_state()
    torch.manual_seed(7)
    everything_done(net, x)
    assert torch.equal(torch.get_rng_state(), plain)


def test_also_after_an_exception():
    net, x = CASES[1].build(N)
    armed = []

    def fail(module, args):
        module.train()
        torch.rand(3)
        if armed:
            raise ZeroDivisionError
        module.eval()

    net[-1].register_forward_pre_hook(fail)
    run = pb.infer(net, x, batch_size=8)
    net.train()
    before = state_of(net, x)
    armed.append(1)
    with pytest.raises(ZeroDivisionError):
        run.gradient_of(0)
    after = state_of(net, x)
    assert all(torch.equal(s, t) for s, t in zip(before[0], after[0], strict=True))
    assert before[1:] == after[1:]
    armed.clear()
    assert run.gradient_of(0).any()


def test_a_buffer_that_forward_replaces_is_given_back():
    class Replacing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return x * 2

    net = Replacing()
    run = pb.infer(net, torch.randn(N, 3), batch_size=8, tolerance=1.0)
    before = net.calls
    assert before == 3
    run.gradient_of(0)
    assert net.calls is before
    assert before == 3


def test_it_works_under_no_grad():
    net, x = CASES[0].build(N)
    with torch.no_grad():
        run = pb.infer(net, x)
        gradient = run.gradient_of(0)
    assert gradient.any()
    assert not gradient.requires_grad


@pytest.mark.parametrize("keep", ["none", 10**9], ids=["recomputed", "kept"])
def test_memory_goes_with_the_run(keep):
    net, x = CASES[1].build(N)
    activations = []
    net[0].register_forward_hook(lambda m, args, y: activations.append(weakref.ref(y)))
    run = everything_done(net, x, keep=keep)
    pick = run.pick([0], torch.sum)
    gc.collect()
    held = sum(reference() is not None for reference in activations)
    assert held == (0 if keep == "none" else 3)
    del run, pick
    gc.collect()
    assert not any(reference() is not None for reference in activations)


def test_a_thousand_picks_hold_their_cotangents_alone():
    net, x = CASES[0].build(N)
    run = pb.infer(net, x)
    picks = [run.pick(i % N, torch.sum) for i in range(1000)]
    run.flush()
    want = run.pull(range(N), torch.ones(N, 3, dtype=x.dtype))
    assert all(torch.allclose(p.gradients[0], want[i % N]) for i, p in enumerate(picks))


class TestInterrupts:
    def test_what_is_inferred_stays_usable(self):
        net, x = CASES[0].build(N)
        want = pb.infer(net, x).gradient_of(0)

        def stop(done, total):
            if done >= 16:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            pb.infer(net, x, batch_size=8, progress=stop)
        run = caught.value.run
        assert run.done.sum() == 16
        assert "16 of 20 rows" in repr(run)
        assert run.outputs[16:].isnan().all()
        run._progress = type(run._progress)(False)
        assert torch.allclose(run.gradient_of(0, rows=slice(0, 16)), want[:16])
        with pytest.raises(InputError, match="row 17 was not inferred"):
            run.gradient_of(0, rows=[3, 17])
        with pytest.raises(InputError, match=r"rows that were not inferred.*run\.done"):
            run.backward(run.outputs.sum())
        run.backward(run.outputs[run.done].sum())

    def test_picks_that_are_complete_stay_so(self):
        net, x = CASES[0].build(N)
        calls = []

        def stop(done, total):
            calls.append(done)
            if len(calls) == 5:  # three batches of the first pass, one of the flush
                raise KeyboardInterrupt

        run = pb.infer(net, x, batch_size=8, progress=stop)
        picks = [run.pick(i, torch.sum) for i in range(N)]
        with pytest.raises(KeyboardInterrupt):
            run.flush()
        ready = [pick.ready for pick in picks]
        assert 0 < sum(ready) < N
        first = picks[0].gradients
        assert picks[-1].gradients.any()
        assert picks[0].gradients is first
