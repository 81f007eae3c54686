"""The ways in which splitting inference from back-propagation goes wrong, one test each.

Each either is handled exactly, compared with one graph in float64, or is an error whose words name
the cause and the way out. None may give a wrong gradient in silence.
"""

import random

import numpy as np
import pytest
import torch
from tests.inference.cases import CASES, cnn, mlp
from tests.inference.references import assert_rows_close, by_loop, by_one_graph
from torch import nn
from torch.nn.functional import cross_entropy

import pullback.inference as pb
from pullback.errors import (
    CoupledRowsError,
    DtypeError,
    GradientError,
    ReplayError,
    ShapeError,
    UnconnectedInputError,
)

N = 24
TIGHT = 1e-12


def network_and_rows(case=1, n=N):
    return CASES[case].build(n)


def finished(net, x, **options):
    """A run with a loss on every row."""
    run = pb.infer(net, x, batch_size=8, **options)
    run.outputs.square().sum().backward()
    return run


class TestTrap01BatchNormInTrainMode:
    def test_it_is_refused_and_the_remedy_named(self):
        net, x = network_and_rows()
        net.train()
        with pytest.raises(CoupledRowsError, match=r"layer 1 \(BatchNorm2d\).*model\.eval\(\)"):
            pb.infer(net, x)

    def test_without_running_statistics_it_is_refused_in_eval_mode_too(self):
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval()
        with pytest.raises(CoupledRowsError, match="coupled='batch'"):
            pb.infer(net, torch.randn(8, 3))

    def test_coupled_batches_are_the_unit_of_the_gradient(self):
        net, x = network_and_rows()
        net.train()
        want = []
        for part in x.split(8):
            gradient, _ = by_one_graph(net, part, lambda y: y[::3].square().sum())
            want.append(gradient)
        run = pb.infer(net, x, batch_size=8, coupled="batch")
        for start in range(0, N, 8):
            run.outputs[start : start + 8 : 3].square().sum().backward()
        assert_rows_close(run.input_gradients(), torch.cat(want), TIGHT)
        # Row 1 had no loss of its own: its gradient is what it does to the others of its batch.
        assert run.input_gradients(1).any()

    def test_coupled_picks_are_each_their_own(self):
        net, x = network_and_rows()
        net.train()
        run = pb.infer(net, x, batch_size=8, coupled="batch")
        first = run.pick([0, 1], lambda y: y.square().sum())
        second = run.pick([1, 2], lambda y: y.sum())
        one, _ = by_one_graph(net, x[:8], lambda y: y[:2].square().sum())
        two, _ = by_one_graph(net, x[:8], lambda y: y[1:3].sum())
        assert_rows_close(first.gradients, one[:2], TIGHT)
        assert_rows_close(second.gradients, two[1:3], TIGHT)


class TestTrap02Dropout:
    def test_masks_are_replayed(self):
        net = nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Tanh(), nn.Linear(64, 2)).double()
        x = torch.randn(N, 5, dtype=torch.float64)
        torch.manual_seed(3)
        leaf = x.clone().requires_grad_()
        (want,) = torch.autograd.grad(sum(net(part).square().sum() for part in leaf.split(8)), leaf)
        torch.manual_seed(3)
        run = finished(net, x)
        assert_rows_close(run.input_gradients(), want, TIGHT)


class TestTrap03PicksThatAreNotTheForwardBatches:
    def test_the_batch_is_the_unit_whatever_rows_are_picked(self):
        net = nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Tanh(), nn.Linear(64, 2)).double()
        x = torch.randn(N, 5, dtype=torch.float64)
        run = finished(net, x)
        everything = run.input_gradients()
        rows = torch.randperm(N)[:11]
        assert_rows_close(run.input_gradients(rows), everything[rows], TIGHT)
        picks = [run.pick([int(r), int(r)], lambda y: y[0].square().sum()) for r in rows]
        for row, pick in zip(rows, picks, strict=True):
            assert_rows_close(pick.gradients[:1], everything[row][None], TIGHT)
        assert "random numbers replayed, for the 3 batches" in str(run.explain())


class TestTrap04RandomNumbersFromElsewhere:
    @pytest.mark.parametrize("draw", [np.random.rand, random.random], ids=["numpy", "python"])
    def test_global_streams_are_replayed(self, draw):
        x = torch.randn(N, 5, dtype=torch.float64)
        factors = []

        def net(x):
            factors.append(1 + draw())
            return x.square() * factors[-1]

        run = pb.infer(net, x, batch_size=8)
        drawn = torch.tensor(factors, dtype=torch.float64).repeat_interleave(8)[:, None]
        assert_rows_close(run.pull(range(N), torch.ones_like(x)), 2 * x * drawn, TIGHT)

    def test_a_generator_of_its_own_is_found(self):
        own = np.random.default_rng(0)
        run = finished(lambda x: x * (1 + own.random()), torch.randn(N, 5))
        with pytest.raises(ReplayError, match="not repeatable: it draws from a random generator"):
            run.input_gradients()


class TestTrap05ChangedWeights:
    def change_in_place(net):
        with torch.no_grad():
            net[-1].weight.mul_(1.5)

    def change_data(net):
        net[-1].weight.data.mul_(1.5)

    def assign_data(net):
        net[-1].weight.data = net[-1].weight.data * 1.5

    def replace(net):
        net[-1].weight = nn.Parameter(net[-1].weight.detach() * 1.5)

    def load(net):
        net.load_state_dict({k: v * 1.5 for k, v in net.state_dict().items()})

    def step(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[-1].weight.grad = torch.ones_like(net[-1].weight)
        optimizer.step()

    def change_statistics(net):
        net[1].running_mean.add_(1)

    ways = (change_in_place, change_data, assign_data, replace, load, step, change_statistics)

    @pytest.mark.parametrize("way", ways, ids=lambda way: way.__name__)
    @pytest.mark.parametrize("keep", ["none", 10**9], ids=["recomputed", "kept"])
    def test_it_is_an_error_that_names_the_weight(self, way, keep):
        net, x = network_and_rows()
        run = finished(net, x, keep=keep)
        way(net)
        with pytest.raises(ReplayError, match=r"weight.*infer"):
            run.input_gradients()

    def test_weights_that_were_given_back_are_right(self):
        net, x = network_and_rows()
        run = finished(net, x)
        want = run.input_gradients()
        saved = {name: value.clone() for name, value in net.state_dict().items()}
        type(self).change_in_place(net)
        net.load_state_dict(saved)
        assert torch.equal(run.input_gradients(), want)


class TestTrap06ChangedInputs:
    def in_place(x):
        x[3] += 1

    def data(x):
        x.data[3] += 1

    def mirror(x):
        x.data[3] = x[3].flip(-1)

    @pytest.mark.parametrize("way", [in_place, data, mirror], ids=lambda way: way.__name__)
    def test_it_is_an_error_that_names_the_row(self, way):
        net, x = network_and_rows()
        run = finished(net, x)
        want = run.input_gradients([0, 1])
        way(x)
        with pytest.raises(ReplayError, match=r"inputs of rows 3 are not those.*call infer again"):
            run.input_gradients()
        # Only rows that are recomputed matter.
        assert torch.equal(run.input_gradients([0, 1]), want)

    def test_a_numpy_array_too(self):
        x = np.random.rand(N, 5)
        run = finished(mlp().double(), x)
        x[5] = 0
        with pytest.raises(ReplayError, match="inputs of rows 5 are not"):
            run.input_gradients()


class TestTrap07FlippedMode:
    def test_rows_are_recomputed_in_the_mode_they_were_run_in(self):
        net, x = network_and_rows()
        run = finished(net, x)
        want = run.input_gradients()
        net.train()
        statistics = net[1].running_mean.clone()
        assert torch.equal(run.input_gradients(), want)
        assert all(part.training for part in net.modules())
        assert torch.equal(net[1].running_mean, statistics)


class TestTrap08LossThatCouplesRows:
    def test_cotangents_come_from_all_outputs(self):
        net, x = network_and_rows()

        def contrastive(y):
            return cross_entropy(y @ y.T, torch.arange(N))

        want, _ = by_one_graph(net, x, contrastive)
        run = pb.infer(net, x, batch_size=8)
        contrastive(run.outputs).backward()
        assert_rows_close(run.input_gradients(), want, TIGHT)


class TestTrap09MeanAgainstSum:
    def test_rows_carry_the_scale_of_the_loss_and_no_other(self):
        net, x = network_and_rows()
        run = pb.infer(net, x, batch_size=8)
        targets = torch.zeros(N, dtype=torch.long)
        want = by_loop(net, x, lambda y, i: cross_entropy(y, targets[i]))
        for rows in (torch.arange(8), torch.arange(20, N)):  # full and short: each its own 1/b
            mean = run.pick(rows, cross_entropy, targets)
            total = run.pick(rows, lambda y, t: cross_entropy(y, t, reduction="sum"), targets)
            assert_rows_close(total.gradients, want[rows], TIGHT)
            assert_rows_close(mean.gradients, want[rows] / len(rows), TIGHT)


class TestTrap10OneRowInTwoPicks:
    def test_two_picks_have_two_answers(self):
        net, x = network_and_rows()
        run = pb.infer(net, x, batch_size=8)
        first, second = (run.pick([4], lambda y, k=k: y[:, k].sum()) for k in (0, 1))
        for k, pick in enumerate((first, second)):
            want = by_loop(net, x[4:5], lambda y, i, k=k: y[k])
            assert_rows_close(pick.gradients, want, TIGHT)


class TestTrap11GradAccumulates:
    def test_no_grad_of_the_callers_is_touched(self):
        net, x = network_and_rows()
        x.requires_grad_()
        x.grad = torch.full_like(x, 7.0)
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, 5.0)
        run = finished(net, x)
        run.input_gradients()
        run.pick([0], torch.sum).gradients.sum()
        assert (x.grad == 7).all()
        assert all((parameter.grad == 5).all() for parameter in net.parameters())


class TestTrap12IndependentOutputs:
    def test_detached(self):
        run = pb.infer(lambda x: x.detach() * 2, torch.randn(N, 3))
        with pytest.raises(UnconnectedInputError, match="not even a zero one"):
            run.gradient_of(0)

    def test_a_detached_output_beside_picks_of_another(self):
        run = pb.infer(lambda x: (x * 2, x.detach()), torch.randn(N, 3))
        fine = run.pick([0], lambda y: y[0].sum())
        lost = run.pick([1], lambda y: y[1].sum())
        with pytest.raises(UnconnectedInputError, match="do not depend on the inputs"):
            assert lost.gradients is None
        del lost
        assert (fine.gradients == 2).all()

    def test_integer(self):
        with pytest.raises(DtypeError, match="argmax has no derivative"):
            pb.infer(lambda x: x.argmax(1), torch.randn(N, 3))

    def test_one_input_of_two(self):
        run = pb.infer(lambda a, b: a * 2, (torch.randn(N, 3), torch.randn(N, 3)))
        with pytest.raises(UnconnectedInputError, match=r"depends on inputs\[1\].*out of wrt"):
            run.gradient_of(0)

    def test_an_input_that_only_another_output_uses_gets_zeros(self):
        run = pb.infer(lambda a, b: (a * 2, b * 3), (torch.randn(N, 3), torch.randn(N, 3)))
        run.outputs[0].sum().backward()
        to_a, to_b = run.input_gradients()
        assert (to_a == 2).all()
        assert (to_b == 0).all()


class TestTrap13InferenceMode:
    def test_the_first_pass_may_run_inside_it(self):
        net, x = network_and_rows()
        want = finished(net, x).input_gradients()
        with torch.inference_mode():
            run = pb.infer(net, x.clone(), batch_size=8)
        run.outputs.square().sum().backward()
        assert torch.equal(run.input_gradients(), want)
        with torch.inference_mode():
            inside = run.input_gradients()
        assert torch.equal(inside, want)


class TestTrap14FrozenParameters:
    def test_nothing_has_to_require_grad(self):
        net, x = network_and_rows()
        want = finished(net, x).input_gradients()
        net.requires_grad_(False)
        assert torch.equal(finished(net, x).input_gradients(), want)
        assert not x.requires_grad


class TestTrap15NaNRows:
    def test_a_row_that_is_not_picked_poisons_nothing(self):
        net, x = network_and_rows()
        x[5] = float("nan")
        clean = [i for i in range(N) if i != 5]
        want, weights = by_one_graph(net, x[clean], lambda y: y.square().sum())
        run = pb.infer(net, x, batch_size=8)
        loss = run.outputs[clean].square().sum()
        loss.backward(retain_graph=True)
        assert_rows_close(run.input_gradients(clean), want, TIGHT)
        run.backward(loss)
        for parameter, gradient in zip(net.parameters(), weights, strict=True):
            assert torch.allclose(parameter.grad, gradient, rtol=1e-10, atol=1e-13)

    def test_with_dropout_and_with_kept_graphs_too(self):
        net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 2)).double()
        x = torch.randn(N, 5, dtype=torch.float64)
        x[5] = float("nan")
        for keep in ("none", 10**9):
            net.zero_grad()
            run = pb.infer(net, x, batch_size=8, keep=keep)
            run.backward(run.outputs[:5].square().sum())
            assert all(p.grad.isfinite().all() for p in net.parameters())

    def test_a_picked_row_keeps_its_nan_to_itself(self):
        net, x = network_and_rows()
        x[5] = float("nan")
        gradient = finished(net, x).input_gradients()
        assert gradient[5].isnan().any()
        assert gradient[[i for i in range(N) if i != 5]].isfinite().all()


class TestTrap16Autocast:
    def test_recomputing_uses_that_of_the_first_pass(self):
        net, x = CASES[0].build(N, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            run = pb.infer(net, x, batch_size=8)
            inside = net(x)
        assert run.outputs.dtype == torch.bfloat16
        assert torch.equal(run.outputs, inside)
        outside = run.pull(range(N), torch.ones_like(run.outputs))
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            assert torch.equal(run.pull(range(N), torch.ones_like(run.outputs)), outside)
        assert "autocast to torch.bfloat16" in str(run.explain())

    def test_the_other_way_round(self):
        net, x = CASES[0].build(N, torch.float32)
        run = pb.infer(net, x, batch_size=8)
        want = run.gradient_of(0)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(run.gradient_of(0), want)

    def test_a_coarser_cotangent_is_refused(self):
        net, x = CASES[0].build(N, torch.float32)
        run = pb.infer(net, x, batch_size=8)
        with pytest.raises(DtypeError, match=r"dtype torch\.float32, got torch\.bfloat16"):
            run.pull([0], torch.ones(1, 3, dtype=torch.bfloat16))


class TestTrap17CallsAndBuffers:
    def test_hooks_run_once_a_batch_and_once_a_batch_recomputed(self):
        net, x = network_and_rows()
        calls = []
        net.register_forward_hook(lambda *_: calls.append("forward"))
        net.register_full_backward_hook(lambda *_: calls.append("backward"))
        run = finished(net, x)
        assert calls == ["forward"] * 3
        run.input_gradients(slice(0, 16))
        assert calls[3:] == ["forward", "backward"] * 2

    def test_running_statistics_advance_once(self):
        net, x = network_and_rows()
        twin = cnn().double()
        twin.load_state_dict(net.state_dict())
        net.train()
        twin.train()
        with torch.no_grad():
            for part in x.split(8):
                twin(part)
        run = finished(net, x, coupled="batch")
        run.input_gradients()
        run.backward(run.outputs.sum())
        assert net[1].num_batches_tracked == 3
        for ours, plain in zip(net.buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, plain)


class Carrying(nn.Module):
    """A network that remembers its last output: in a buffer, or in an attribute."""

    def __init__(self, buffer):
        super().__init__()
        self.linear = nn.Linear(5, 5)
        if buffer:
            self.register_buffer("state", torch.zeros(5))
        else:
            self.state = torch.zeros(5)

    def forward(self, x):
        y = torch.tanh(self.linear(x) + self.state)
        with torch.no_grad():
            self.state.copy_(y[-1]) if "state" in self._buffers else setattr(
                self, "state", y[-1].detach()
            )
        return y


class TestTrap18HiddenState:
    def test_in_a_buffer(self):
        run = finished(Carrying(buffer=True), torch.randn(N, 5))
        with pytest.raises(
            ReplayError, match=r"hidden state is carried.*the buffers state changed"
        ):
            run.input_gradients()

    def test_in_an_attribute(self):
        run = finished(Carrying(buffer=False), torch.randn(N, 5))
        with pytest.raises(ReplayError, match=r"carries state from call to call"):
            run.input_gradients()

    def test_passed_as_an_input_it_is_right(self):
        cell = nn.GRUCell(5, 4).double()
        x, h = (torch.randn(N, k, dtype=torch.float64) for k in (5, 4))
        run = pb.infer(cell, (x, h), batch_size=8)
        run.outputs.square().sum().backward()
        leaves = [x.clone().requires_grad_(), h.clone().requires_grad_()]
        want = torch.autograd.grad(cell(*leaves).square().sum(), leaves)
        for found, expected in zip(run.input_gradients(), want, strict=True):
            assert_rows_close(found, expected, TIGHT)


class TestTrap19RaggedImages:
    def test_rows_are_grouped_by_size_and_never_padded(self):
        net, _ = network_and_rows()
        images = [torch.randn(2, 6 + i % 3, 8, dtype=torch.float64) for i in range(N)]
        seen = []
        net.register_forward_hook(lambda m, args, y: seen.append(tuple(args[0].shape)))
        run = pb.infer(net, images, batch_size=5)
        assert {shape[2:] for shape in seen} == {(6, 8), (7, 8), (8, 8)}
        run.outputs[[0, 1, 2, 10]].square().sum().backward()
        for row in (0, 1, 2, 10):
            want, _ = by_one_graph(net, images[row][None], lambda y: y.square().sum())
            (found,) = run.input_gradients(row)
            assert_rows_close(found[None], want, TIGHT)


class TestTrap20MemoryGrows:
    def test_nothing_but_outputs_is_held(self):
        net, x = network_and_rows()
        run = pb.infer(net, x, batch_size=8)
        assert run.outputs.grad_fn is None
        assert all(batch.graph is None for batch in run._replay.recording.batches)
        assert run.explain().kept_bytes == 0


class TestTrap21RecurrentInEvalMode:
    def test_a_recurrent_network_in_eval_mode_has_gradients(self):
        net, x = network_and_rows(case=3)
        want = by_loop(net, x, lambda y, i: y[0])
        assert not net.training
        assert_rows_close(pb.infer(net, x, batch_size=8).gradient_of(0), want, TIGHT)


class TestTrap22InputsThatCannotCarryAGradient:
    def test_integers_alone(self):
        with pytest.raises(
            DtypeError, match=r"inputs is torch\.uint8.*differentiate its embedding"
        ):
            pb.infer(lambda x: x.float(), torch.zeros(N, 3, dtype=torch.uint8))

    def test_integers_beside_others_pass_through(self):
        embed = nn.Embedding(4, 5).double()
        x = {"x": torch.randn(N, 5, dtype=torch.float64), "kind": torch.arange(N) % 4}
        run = pb.infer(lambda x, kind: (x * embed(kind)).sum(1), x, batch_size=8)
        assert_rows_close(run.gradient_of(())["x"], embed(x["kind"]).detach(), TIGHT)
        assert list(run.gradient_of(())) == ["x"]

    def test_a_named_integer(self):
        x = {"x": torch.randn(N, 5), "kind": torch.arange(N) % 4}
        with pytest.raises(DtypeError, match=r"inputs\['kind'\] is torch\.int64"):
            pb.infer(lambda x, kind: x, x, wrt="kind")

    def test_inputs_that_are_not_leaves(self):
        net, x = network_and_rows()
        want = finished(net, x).input_gradients()
        scale = torch.ones((), dtype=x.dtype, requires_grad=True)
        assert torch.equal(finished(net, x * scale).input_gradients(), want)
        assert scale.grad is None


class TestTrap23ChannelsLast:
    def test_the_layout_is_kept_and_the_gradient_right(self):
        net, x = network_and_rows()
        want = finished(net, x).input_gradients()
        seen = []
        net.register_forward_hook(
            lambda m, args, y: seen.append(args[0].is_contiguous(memory_format=torch.channels_last))
        )
        run = finished(net, x.contiguous(memory_format=torch.channels_last))
        gradient = run.input_gradients()
        assert all(seen)
        assert gradient.is_contiguous(memory_format=torch.channels_last)
        assert_rows_close(gradient, want, 1e-10)


def test_the_traps_are_all_here():
    """Twenty-three were found; a lost one would not be missed otherwise."""
    found = [name for name in globals() if name.startswith("TestTrap")]
    assert sorted(int(name[8:10]) for name in found) == list(range(1, 24))


def test_a_scalar_output_is_no_row():
    with pytest.raises(ShapeError, match="one row a sample in the model's output"):
        pb.infer(lambda x: x.mean(), torch.randn(N, 3))
    with pytest.raises(GradientError):
        pb.infer(mlp(), torch.randn(N, 5)).input_gradients()
