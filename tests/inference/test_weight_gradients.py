"""A loss over all rows into the weights, batch by batch, against one big graph."""

import copy
import os

import pytest
import torch
from tests.inference.cases import CASES
from tests.inference.references import assert_rows_close, by_one_graph
from torch import nn
from torch.nn.functional import cross_entropy

import pullback.inference as pb
from pullback.errors import InputError, ReplayError, UnconnectedInputError

N = 20


def contrastive(y):
    return cross_entropy(y @ y.T, torch.arange(len(y)))


def assert_weights(net, want, scale=1.0):
    for (name, parameter), gradient in zip(net.named_parameters(), want, strict=True):
        size = gradient.abs().max()
        assert torch.allclose(parameter.grad, scale * gradient, rtol=0, atol=float(1e-11 * size)), (
            name
        )


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("keep", ["none", 10**9], ids=["recomputed", "kept"])
def test_it_equals_one_graph(case, keep):
    net, x = case.build(N)
    inputs, weights = by_one_graph(net, x, contrastive)
    run = pb.infer(net, x, batch_size=8, keep=keep)
    assert run.backward(contrastive(run.outputs)) is None
    assert_weights(net, weights)
    found = run.backward(contrastive(run.outputs), input_gradients=True)
    assert_rows_close(found, inputs, 1e-11)
    assert_weights(net, weights, scale=2)  # it accumulates, as .backward() does
    assert run.outputs.grad is None


def test_a_wrong_weight_gradient_is_noticed():
    net, x = CASES[0].build(N)
    _, weights = by_one_graph(net, x, contrastive)
    run = pb.infer(net, x, batch_size=8)
    run.backward(contrastive(run.outputs) * 1.001)
    with pytest.raises(AssertionError, match=r"0\.weight"):
        assert_weights(net, weights)


def test_dropout_is_the_same_mask_in_both_halves():
    net = nn.Sequential(nn.Linear(5, 32), nn.Dropout(0.5), nn.Linear(32, 3)).double()
    x = torch.randn(N, 5, dtype=torch.float64)
    torch.manual_seed(2)
    y = torch.cat([net(part) for part in x.split(8)])
    want = torch.autograd.grad(contrastive(y), list(net.parameters()))
    torch.manual_seed(2)
    run = pb.infer(net, x, batch_size=8)
    run.backward(contrastive(run.outputs))
    assert_weights(net, want)


def test_accumulation_and_an_outer_scale_reach_every_batch():
    net, x = CASES[0].build(N)
    _, weights = by_one_graph(net, x, contrastive)
    for _ in range(4):
        run = pb.infer(net, x, batch_size=8)
        run.backward(contrastive(run.outputs) / 4)
    assert_weights(net, weights)


def test_a_grad_scaler_scales_and_unscales_all_of_it():
    net, x = CASES[0].build(N)
    _, weights = by_one_graph(net, x, contrastive)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = pb.infer(net, x, batch_size=8)
    run.backward(scaler.scale(contrastive(run.outputs)))
    scaler.unscale_(optimizer)
    assert_weights(net, weights)


def test_weights_in_the_loss_itself_get_their_gradient():
    net, x = CASES[0].build(N)
    scale = torch.ones((), dtype=x.dtype, requires_grad=True)

    def loss(y):
        return contrastive(y * scale) + net[0].weight.square().sum()

    scale_wanted, *wanted = torch.autograd.grad(loss(net(x)), [scale, *net.parameters()])
    run = pb.infer(net, x, batch_size=8)
    run.backward(loss(run.outputs))
    assert torch.allclose(scale.grad, scale_wanted, rtol=1e-11)
    assert_weights(net, wanted)


def test_only_rows_with_a_cotangent_are_recomputed():
    net, x = CASES[0].build(N)
    run = pb.infer(net, x, batch_size=8)
    seen = []
    net.register_forward_hook(lambda m, args, y: seen.append(len(y)))
    run.backward(run.outputs[3:6].sum())
    assert seen == [8]


def test_one_part_frozen():
    net, x = CASES[0].build(N)
    net[0].requires_grad_(False)
    _, weights = by_one_graph(net, x, contrastive)
    run = pb.infer(net, x, batch_size=8)
    run.backward(contrastive(run.outputs))
    trained = [p for p in net.parameters() if p.requires_grad]
    assert all(torch.allclose(p.grad, w, rtol=1e-10) for p, w in zip(trained, weights, strict=True))
    assert net[0].weight.grad is None


def test_unfrozen_after_inference_kept_graphs_are_not_used():
    net, x = CASES[0].build(N)
    _, weights = by_one_graph(net, x, contrastive)
    net[0].requires_grad_(False)
    run = pb.infer(net, x, batch_size=8, keep=10**9)
    net[0].requires_grad_(True)
    run.backward(contrastive(run.outputs))
    assert_weights(net, weights)


def test_cotangents_of_picks_stay_as_they_were():
    net, x = CASES[0].build(N)
    run = pb.infer(net, x, batch_size=8)
    run.outputs[2].sum().backward()
    before = run.outputs.grad.clone()
    run.backward(contrastive(run.outputs))
    assert torch.equal(run.outputs.grad, before)


class TestErrors:
    def test_a_loss_a_row(self):
        run = pb.infer(*CASES[0].build(N))
        with pytest.raises(InputError, match=r"scalar loss, got \[20\]"):
            run.backward(run.outputs.sum(1))

    def test_a_loss_of_something_else(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        with pytest.raises(UnconnectedInputError, match=r"does not depend on run\.outputs"):
            run.backward(net(x).sum())

    def test_all_frozen(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net.requires_grad_(False), x)
        with pytest.raises(UnconnectedInputError, match="Are all parameters frozen"):
            run.backward(run.outputs.sum())

    def test_after_a_step_the_run_is_stale_and_grad_as_it_was(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x, batch_size=8)
        loss = contrastive(run.outputs)
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        with pytest.raises(ReplayError, match="weights changed"):
            run.backward(loss)
        assert all((p.grad == 1).all() for p in net.parameters())

    def test_failing_halfway_gives_grad_back(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x, batch_size=8)
        x[-1] = 0  # the last batch is where it shows
        held = torch.ones_like(net[0].weight)
        net[0].weight.grad = held
        with pytest.raises(ReplayError, match="inputs of rows 19"):
            run.backward(contrastive(run.outputs))
        assert net[0].weight.grad is held
        assert (held == 1).all()
        assert net[2].weight.grad is None


@pytest.fixture
def one_process_group(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*torch.distributed.*")
def test_a_data_parallel_model_reduces_once(one_process_group):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    net, x = CASES[0].build(N)
    _, weights = by_one_graph(net, x, contrastive)
    parallel = nn.parallel.DistributedDataParallel(copy.deepcopy(net))
    reductions = []

    def hook(state, bucket):
        reductions.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    parallel.register_comm_hook(None, hook)
    run = pb.infer(parallel, x, batch_size=4)
    assert run.pull([0, 1], torch.ones(2, 3, dtype=x.dtype)).any()
    assert reductions == []  # input gradients need none
    run.backward(contrastive(run.outputs))
    assert reductions == [0]
    assert_weights(parallel.module, weights)
