"""What people reported in public, as tests. Each names its thread.

Their essence is in the research on which this part rests; each test is the reported situation,
made small, with the answer that a reader of the thread would have wanted.
"""

import copy
import gc
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace

import pytest
import torch
from tests.inference.cases import CASES, Recurrent, cnn, mlp
from tests.inference.references import assert_rows_close, by_loop, by_one_graph
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import pullback.inference as pb
from pullback.errors import CoupledRowsError, DtypeError, ReplayError

N = 16
TIGHT = 1e-12


@pytest.fixture
def net_and_x():
    return CASES[0].build(N)


def test_two_picks_without_retain_graph(net_and_x):
    """discuss.pytorch.org/t/6795: trying to backward through the graph a second time."""
    net, x = net_and_x
    run = pb.infer(net, x)
    run.outputs[:3].sum().backward()
    run.outputs[2:5].sum().backward()
    want = by_loop(net, x, lambda y, i: y.sum() * (1 + (i == 2)))
    assert_rows_close(run.input_gradients(range(5)), want[:5], TIGHT)


def test_a_recurrent_network_holds_no_graph():
    """cnslab_fmri/4: an LSTM with retain_graph=True runs out of memory."""
    net, x = CASES[3].build(N)
    held = []
    net.gru.register_forward_hook(lambda m, args, y: held.append(weakref.ref(y[0])))
    run = pb.infer(net, x, batch_size=8)
    run.gradient_of(0)
    gc.collect()
    assert len(held) == 4
    assert not any(reference() is not None for reference in held)


def test_a_carried_hidden_state_is_found():
    """PyTorch-Tutorial/57: what h_state = h_state.data is for."""

    class Remembering(Recurrent):
        state = None

        def forward(self, x):
            y, self.state = self.gru(x, None if self.state is None else self.state.detach())
            return self.head(y[:, -1])

    run = pb.infer(Remembering(), torch.randn(N, 7, 4), batch_size=8)
    with pytest.raises(ReplayError, match="state"):
        run.gradient_of(0)


def test_losses_of_many_tasks_do_not_grow_memory(net_and_x):
    """MetaBalance/2: retain_graph for one backward a task leaks."""
    net, x = net_and_x
    run = pb.infer(net, x)
    losses = [run.outputs[:, k].sum() for k in range(3)]
    for loss in losses:
        loss.backward()
    graphs = [weakref.ref(loss) for loss in losses]
    del losses, loss
    assert all(graph() is None for graph in graphs)
    assert run.input_gradients().any()


def test_a_checkpointed_network_may_be_picked_from_twice(net_and_x):
    """PyTorch-Encoding/76: checkpointing breaks with retain_graph."""
    net, x = net_and_x

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)

    want = pb.infer(net, x).gradient_of(0)
    run = pb.infer(checkpointed, x)
    assert_rows_close(run.gradient_of(0), want, TIGHT)
    assert_rows_close(run.gradient_of(0), want, TIGHT)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_a_gradient_does_not_depend_on_the_batch_size(batch_size, net_and_x):
    """foolbox/439: gradients differ with the batch size (a mean in the loss)."""
    net, x = net_and_x
    want = by_loop(net, x, lambda y, i: cross_entropy(y, torch.tensor(1)))
    run = pb.infer(net, x, batch_size=batch_size)
    picks = [run.pick(i, cross_entropy, torch.ones(N, dtype=torch.long)) for i in range(N)]
    assert_rows_close(torch.cat([pick.gradients for pick in picks]), want, TIGHT)


def test_a_sum_does_not_mix_rows(net_and_x):
    """foolbox/636: does .sum() over the batch mix the rows?"""
    net, x = net_and_x
    alone = pb.infer(net, x[4:5]).gradient_of(0)
    assert_rows_close(pb.infer(net, x).gradient_of(0)[4:5], alone, TIGHT)


def test_values_a_row_and_gradients_from_one_loss(net_and_x):
    """adversarial-robustness-toolbox/2028: a vector of losses for values, a mean for gradients."""
    net, x = net_and_x
    run = pb.infer(net, x)
    targets = torch.zeros(N, dtype=torch.long)
    pick = run.pick(None, lambda y, t: cross_entropy(y, t, reduction="none"), targets)
    assert pick.loss.shape == (N,)
    want = by_loop(net, x, lambda y, i: cross_entropy(y, torch.tensor(0)))
    assert_rows_close(pick.gradients, want, TIGHT)


def test_group_norm_in_train_mode_is_no_batch_norm():
    """GradCache/15: how to handle BatchNorm? GroupNorm was the answer."""
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()).double().train()
    x = torch.randn(N, 2, 5, 5, dtype=torch.float64)
    want = by_loop(net, x, lambda y, i: y[0])
    assert_rows_close(pb.infer(net, x, batch_size=8).gradient_of(0), want, TIGHT)


def test_the_meaning_of_a_coupled_gradient_is_the_batchs():
    """backpack/160: four meanings of individual gradients under BatchNorm; ours is stated."""
    net, x = CASES[1].build(N)
    net.train()
    run = pb.infer(net, x, batch_size=8, coupled="batch")
    run.outputs[0].sum().backward()
    want, _ = by_one_graph(net, x[:8], lambda y: y[0].sum())
    assert_rows_close(run.input_gradients(slice(0, 8)), want, TIGHT)
    assert not run.input_gradients(slice(8, 16)).any()  # only those of its batch


def test_a_forgotten_eval_is_noticed():
    """TRADES/3: outputs depend on batch size and contents."""
    with pytest.raises(CoupledRowsError, match=r"Call model\.eval\(\)"):
        pb.infer(cnn(), torch.randn(N, 2, 8, 8))


def test_rows_that_depend_on_their_batch_are_noticed_without_a_batch_norm():
    """TRADES/3 again, where no layer gives it away."""

    def centred(x):
        return x.square() - x.mean(0)

    x = torch.randn(N, 3, dtype=torch.float64)
    run = pb.infer(centred, x, batch_size=16)
    with pytest.raises(CoupledRowsError, match=r"whole batch.*coupled='batch'"):
        run.gradient_of(0, rows=range(8))
    with pytest.raises(CoupledRowsError, match="coupled='batch'"):
        run.gradient_of(0)  # also where all of a batch is asked for
    coupled = pb.infer(centred, x, batch_size=16, coupled="batch")
    want, _ = by_one_graph(centred, x, lambda y: y[:8, 0].sum())
    assert_rows_close(coupled.gradient_of(0, rows=range(8)), want[:8], TIGHT)


def test_dropout_sees_the_same_mask_twice():
    """GC-DPR/12: gradient caching against dropout."""
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1, bias=False))
    run = pb.infer(net.train(), torch.ones(N, 4), batch_size=8)
    masks = run.gradient_of(0) / net[1].weight
    assert torch.allclose((masks * net[1].weight).sum(1), run.outputs.detach()[:, 0])


def test_random_streams_are_kept_for_inputs_in_containers():
    """pytorch/121212: the seed was not restored for lists of tensors."""
    net = nn.Dropout(0.5)
    inputs = {"a": torch.ones(N, 4), "b": torch.ones(N, 4)}
    run = pb.infer(lambda a, b: net(a) * net(b), inputs, batch_size=8)
    before = torch.get_rng_state()
    gradients = run.pull(None, torch.ones(N, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(gradients["a"], run.outputs.detach())


def test_features_written_to_in_place():
    """sentence-transformers/3862: features were changed in place between the passes."""

    def in_place(x):
        return x.mul_(2).square()

    x = torch.randn(N, 3, dtype=torch.float64)
    kept = x.clone()
    run = pb.infer(in_place, x)
    assert torch.allclose(run.pull(None, torch.ones_like(x)), 8 * x)
    assert torch.equal(x, kept)


def test_two_runs_before_one_backward(net_and_x):
    """sentence-transformers/3862: state kept on the object, two forwards before one backward."""
    net, x = net_and_x
    first, second = pb.infer(net, x), pb.infer(net, x.flip(0).clone())
    (first.outputs.sum() * second.outputs.sum()).backward()
    want = second.outputs.sum().item() * by_loop(net, x, lambda y, i: y.sum())
    assert_rows_close(first.input_gradients(), want, 1e-10)


def test_randomness_is_the_same_in_every_recompute():
    """pytorch/190758: recomputed random operators drew afresh."""
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5)).train()
    run = pb.infer(net, torch.randn(N, 3), batch_size=8)
    first = run.gradient_of(0)
    torch.rand(5)
    assert torch.equal(run.gradient_of(0), first)


def test_no_batch_of_rows_is_dropped(net_and_x):
    """sentence-transformers/3854: only the gradient of the last chunk was kept."""
    net, x = net_and_x
    run = pb.infer(net, x, batch_size=5)
    run.outputs.square().sum().backward()
    want, _ = by_one_graph(net, x, lambda y: y.square().sum())
    assert_rows_close(run.input_gradients(), want, TIGHT)


def test_a_short_last_batch_has_no_scale_of_its_own(net_and_x):
    """sentence-transformers/3420: an incomplete last batch is weighted differently."""
    net, x = net_and_x
    _, want = by_one_graph(net, x, lambda y: y.square().mean())
    run = pb.infer(net, x, batch_size=7)
    run.backward(run.outputs.square().mean())
    for parameter, gradient in zip(net.parameters(), want, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-11)


def test_the_loss_side_keeps_no_graphs_either(net_and_x):
    """sentence-transformers/3107: the loss held the graph of all chunks."""
    net, x = net_and_x
    run = pb.infer(net, x)
    pick = run.pick([0], lambda y: y.exp().sum())
    assert pick.loss.grad_fn is None
    assert all(s is None or t.grad_fn is None for s in pick._request.cotangents for t in s.tensors)


def test_the_same_gradient_as_a_larger_batch(net_and_x):
    """GradCache/7: how can this be the gradient of the larger batch?"""
    net, x = net_and_x

    def loss(y):
        return cross_entropy(y @ y.T, torch.arange(N))

    _, want = by_one_graph(net, x, loss)
    for batch_size in (2, 16):
        net.zero_grad()
        run = pb.infer(net, x, batch_size=batch_size)
        run.backward(loss(run.outputs))
        for parameter, gradient in zip(net.parameters(), want, strict=True):
            assert torch.allclose(parameter.grad, gradient, rtol=1e-10, atol=1e-14)


def test_batches_of_one_are_recomputed_in_larger_ones(net_and_x):
    """GradCache/30: training is slow with a chunk size of one."""
    net, x = net_and_x
    run = pb.infer(net, x, batch_size=1)
    run._rules = replace(run._rules, batch_size=16)
    picks = [run.pick(i, torch.sum) for i in range(N)]
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    run.flush()
    assert len(calls) == 1
    assert all(pick.ready for pick in picks)


def test_autocast_around_everything():
    """GradCache/17: an outer autocast around the whole call breaks."""
    net, x = CASES[0].build(N, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        run = pb.infer(net, x, batch_size=8)
        run.backward(run.outputs.float().square().sum())
    inside = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x).float().square().sum()
    loss.backward()
    for found, parameter in zip(inside, net.parameters(), strict=True):
        # bfloat16 has 8 bits: batches of 8 and one of 16 sum in another order.
        assert torch.allclose(
            found, parameter.grad, rtol=0.05, atol=0.02 * parameter.grad.abs().max()
        )
        assert found.any()


def test_autocast_does_not_reuse_weights_cast_without_a_graph():
    """pytorch/141896: autocast's cache of weights and recomputation."""
    net, x = CASES[0].build(N, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            net(x)  # fills the cache with weights that have no graph
        run = pb.infer(net, x, batch_size=8)
        run.backward(run.outputs.float().sum())
    assert all(parameter.grad.any() for parameter in net.parameters())


def test_scaled_losses_give_scaled_input_gradients(net_and_x):
    """apex/873: input gradients of a scaled loss have to be unscaled."""
    net, x = net_and_x
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    run = pb.infer(net, x)
    loss = run.outputs.square().sum()
    plain = run.backward(loss, input_gradients=True)
    scaled = run.backward(scaler.scale(run.outputs.square().sum()), input_gradients=True)
    assert_rows_close(scaled / scaler.get_scale(), plain, TIGHT)


def test_parameters_are_shared_and_their_hooks_run_once_a_batch():
    """pytorch/81296: the hook of a shared parameter."""
    linear = nn.Linear(3, 3)
    net = nn.Sequential(linear, nn.Tanh(), linear)
    calls = []
    linear.weight.register_post_accumulate_grad_hook(lambda _: calls.append(1))
    run = pb.infer(net, torch.randn(N, 3), batch_size=8)
    run.gradient_of(0)
    assert calls == []
    run.backward(run.outputs.sum())
    assert len(calls) == 2


def test_recomputing_goes_through_the_same_entry_point():
    """peft/2826: recomputation left out a hook's keyword arguments: zero gradients, no error."""
    net = nn.Linear(3, 2).double()
    net.register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    x = torch.randn(N, 3, dtype=torch.float64)
    want = 3 * net.weight.detach()[0].expand(N, 3)
    assert_rows_close(pb.infer(net, x).gradient_of(0), want, TIGHT)


def test_backward_hooks_leak_nothing(net_and_x):
    """pytorch/82528: full backward hooks with a kept graph."""
    net, x = net_and_x
    net.register_full_backward_hook(lambda *_: None)
    run = pb.infer(net, x)
    reference = weakref.ref(run.pull(None, torch.ones_like(run.outputs)))
    gc.collect()
    assert reference() is None


def test_frozen_networks(net_and_x):
    """transformers/23170: checkpointing fails with frozen parameters."""
    net, x = net_and_x
    want = pb.infer(net, x).gradient_of(0)
    assert torch.equal(pb.infer(net.requires_grad_(False), x).gradient_of(0), want)


def test_an_embedding_is_differentiated_behind_the_lookup():
    """captum/771 and thermostat/5: integer inputs through an embedding layer."""
    embedding, head = nn.Embedding(7, 4).double(), nn.Linear(4, 2).double()
    tokens = torch.randint(7, (N, 5))

    def net(tokens):
        return head(embedding(tokens).mean(1))

    with pytest.raises(DtypeError, match="differentiate its embedding"):
        pb.infer(net, tokens)
    run = pb.infer(lambda e: head(e.mean(1)), embedding(tokens))
    want = head.weight.detach()[0].expand(N, 5, 4) / 5
    assert_rows_close(run.gradient_of(0), want, TIGHT)


def test_inputs_that_are_no_leaves_keep_their_grad(net_and_x):
    """captum/491, 421 and 597: a warning for non-leaves, and .grad must stay as it was."""
    net, x = net_and_x
    leaf = x.clone().requires_grad_()
    inner = leaf * 1
    inner.retain_grad()
    pb.infer(net, inner).gradient_of(0)
    assert leaf.grad is None
    assert inner.grad is None


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: tuple
    loss: object = None


class OrderedAnswer(OrderedDict):
    """As transformers' ModelOutput: a dict with a class of its own."""


@pytest.mark.parametrize("kind", ["dataclass", "dict", "tuple", "class of dict"])
def test_outputs_in_containers(kind, net_and_x):
    """pytorch/124725 and 178568: dataclass outputs lost requires_grad under checkpointing."""
    net, x = net_and_x
    make = {
        "dataclass": lambda y: Answer(y, (y * 2,)),
        "dict": lambda y: {"logits": y, "hidden": (y * 2,), "loss": None},
        "tuple": lambda y: (y, (y * 2,)),
        "class of dict": lambda y: OrderedAnswer(logits=y, hidden=(y * 2,)),
    }[kind]
    run = pb.infer(lambda x: make(net(x)), x, batch_size=8)
    if kind == "dataclass":
        assert isinstance(run.outputs, Answer)
        logits, hidden = run.outputs.logits, run.outputs.hidden[0]
    elif kind == "tuple":
        logits, (hidden,) = run.outputs
    else:
        assert type(run.outputs) is (OrderedAnswer if kind == "class of dict" else dict)
        logits, hidden = run.outputs["logits"], run.outputs["hidden"][0]
    (logits[:, 0].sum() + hidden[:, 1].sum()).backward()
    want = by_loop(net, x, lambda y, i: y[0] + 2 * y[1])
    assert_rows_close(run.input_gradients(), want, TIGHT)
    name = "0" if kind == "tuple" else "logits"
    assert_rows_close(run.gradient_of(0, output=name), by_loop(net, x, lambda y, i: y[0]), TIGHT)


def test_dict_batches_of_something_else_than_images():
    """composer/896: selection for dict batches and inputs that are no images."""
    rows = [{"x": torch.randn(3), "mask": torch.arange(3) < 1 + i % 3} for i in range(N)]
    run = pb.infer(lambda x, mask: (x.square() * mask).sum(1), DataLoader(rows, batch_size=4))
    hardest = run.outputs.topk(4).indices
    found = run.gradient_of((), hardest)["x"]
    for gradient, i in zip(found, hardest.tolist(), strict=True):
        assert torch.allclose(gradient, 2 * rows[i]["x"] * rows[i]["mask"])


def test_inference_tensors_never_reach_backward(net_and_x):
    """unsloth/2434 and trl/2983: inference tensors cannot be saved for backward."""
    net, x = net_and_x
    with torch.inference_mode():
        run = pb.infer(net, x + 0)
    assert not run.outputs.is_inference()
    assert run.gradient_of(0).any()


def test_a_row_is_the_same_in_any_company():
    """pytorch/58128 and LeViT/28: outputs differ with the batch size by some 1e-6."""
    net, x = CASES[1].build(64, torch.float32)
    run = pb.infer(net, x, batch_size=32)
    want = run.gradient_of(0)
    for rows in ([5], [5, 6, 7], range(0, 40)):
        # Filled up to eight rows; float32 rounding is what is left.
        assert_rows_close(run.gradient_of(0, rows), want[list(rows)], 1e-5)


def test_memory_depends_on_the_batch_alone():
    """captum/1350, 632 and 497: memory has to depend on the internal batch size."""
    alive, most = [], []

    class Counting(nn.Module):
        def forward(self, x):
            y = torch.tanh(x)
            alive.append(weakref.ref(y))
            most.append(sum(len(t) for reference in alive if (t := reference()) is not None))
            return y.sum(1)

    for n in (32, 128):
        alive.clear()
        most.clear()
        run = pb.infer(Counting(), torch.randn(n, 4), batch_size=8)
        run.gradient_of(())
        assert max(most) <= 16


def test_saliency_of_a_whole_data_set_is_batched(net_and_x):
    """MONAI/7334 and PAIR saliency/10: batch support for saliency maps."""
    net, x = net_and_x
    calls = []
    net.register_forward_hook(lambda m, args, y: calls.append(len(y)))
    pb.infer(net, DataLoader(list(x), batch_size=8)).gradient_of(0)
    assert calls == [8, 8, 8, 8]


def test_two_rows_equal_two_singles(net_and_x):
    """inseq/110: batched attribution differs from single ones."""
    net, x = net_and_x
    both = pb.infer(net, x[:2]).gradient_of(1)
    singles = torch.cat([pb.infer(net, x[i : i + 1]).gradient_of(1) for i in range(2)])
    assert_rows_close(both, singles, TIGHT)


def test_deferred_back_propagation_in_plain_torch():
    """ARF-svox2/11 and NeRF-Art/4: a loss on the whole image, back-propagated ray by ray."""
    field = mlp().double()
    rays = torch.randn(64, 5, dtype=torch.float64)

    def style(colours):
        gram = colours.reshape(8, 8, 3).flatten(0, 1).T
        return (gram @ gram.T).square().sum()

    _, want = by_one_graph(field, rays, style)
    run = pb.infer(field, rays, batch_size=16)
    run.backward(style(run.outputs))
    for parameter, gradient in zip(field.parameters(), want, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-9)


def test_networks_that_vmap_cannot_take(net_and_x):
    """functorch/328 and pytorch/68538: no per-row transform, so no branch is in its way."""
    net, x = net_and_x

    def branching(x):
        return net(x if x.sum() > 0 else x * 1)

    assert_rows_close(pb.infer(branching, x).gradient_of(0), pb.infer(net, x).gradient_of(0), TIGHT)


def test_repeated_calls_hold_no_more(net_and_x):
    """pytorch-grad-cam/112 and 71: memory grows from call to call."""
    net, x = net_and_x
    run = pb.infer(net, x)

    def living():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    run.gradient_of(0)
    before = living()
    for _ in range(5):
        run.gradient_of(0)
        run.pick([0], torch.sum).gradients.sum()
    assert living() <= before


def test_one_part_frozen_one_trained(net_and_x):
    """sentence-transformers/3527: cached losses with one part frozen."""
    net, x = net_and_x
    net[0].requires_grad_(False)
    twin = copy.deepcopy(net)
    twin(x).square().sum().backward()
    run = pb.infer(net, x, batch_size=8)
    run.backward(run.outputs.square().sum())
    for ours, plain in zip(net.parameters(), twin.parameters(), strict=True):
        assert (ours.grad is None) == (plain.grad is None)
        assert plain.grad is None or torch.allclose(ours.grad, plain.grad, rtol=1e-11)
