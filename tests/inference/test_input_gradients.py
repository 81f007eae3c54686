"""Picks over time against one graph, and against one row at a time."""

import pytest
import torch
from tests.inference.cases import CASES
from tests.inference.references import assert_rows_close, by_loop, by_one_graph
from torch.nn.functional import cross_entropy

import pullback.inference as pb
from pullback.errors import DtypeError, GradientError, InputError, ShapeError, UnconnectedInputError

N = 37
every_case = pytest.mark.parametrize("case", CASES, ids=str)
# Softmax of a 1e-16 difference: a few units in the last place through a few layers.
TIGHT = 1e-12


def labels():
    return torch.arange(N) % 3


def summed(outputs, targets):
    return cross_entropy(outputs, targets, reduction="sum")


class TestAgainstTheObvious:
    @every_case
    def test_outputs_are_those_of_the_network(self, case):
        net, x = case.build(N)
        run = pb.infer(net, x, batch_size=10)
        assert torch.allclose(run.outputs, net(x), rtol=0, atol=1e-14)
        assert run.outputs.is_leaf
        assert run.outputs.requires_grad
        assert len(run) == N

    @every_case
    def test_picks_over_time_equal_one_row_at_a_time(self, case):
        net, x = case.build(N)
        want = by_loop(net, x, lambda y, i: cross_entropy(y, labels()[i]))
        run = pb.infer(net, x, batch_size=10)
        for rows in (torch.arange(0, N, 3), torch.tensor([1, 4, 35]), torch.tensor([2])):
            summed(run.outputs[rows], labels()[rows]).backward()
        rows = torch.tensor([0, 1, 2, 3, 4, 35, 36])
        assert_rows_close(run.input_gradients(rows), want[rows], TIGHT)

    @every_case
    def test_all_rows_equal_one_graph(self, case):
        net, x = case.build(N)
        want, _ = by_one_graph(net, x, lambda y: summed(y, labels()))
        run = pb.infer(net, x, batch_size=10)
        summed(run.outputs, labels()).backward()
        assert_rows_close(run.input_gradients(), want, TIGHT)

    @every_case
    def test_float32_with_batches_of_eight_or_more_is_bit_equal(self, case):
        if case.name == "attention":
            pytest.skip("this kernel rounds by batch size; see test_verify for how far")
        net, x = case.build(64, torch.float32)
        want, _ = by_one_graph(net, x, lambda y: y.square().sum())
        run = pb.infer(net, x, batch_size=16)
        run.outputs.square().sum().backward()
        assert torch.equal(run.input_gradients(), want)

    @every_case
    def test_float32_is_right_to_rounding(self, case):
        net, x = case.build(64, torch.float32)
        want, _ = by_one_graph(net, x, lambda y: y.square().sum())
        run = pb.infer(net, x, batch_size=16)
        run.outputs.square().sum().backward()
        # float32 rounding through a handful of layers; no kink is met with this seed.
        assert_rows_close(run.input_gradients(), want, 1e-5)

    @every_case
    def test_each_pick_has_its_own_gradient(self, case):
        net, x = case.build(N)
        want = by_loop(net, x, lambda y, i: cross_entropy(y, labels()[i]))
        run = pb.infer(net, x, batch_size=10)
        picks = [run.pick(rows, summed, labels()) for rows in ([0, 5, 7], 5, slice(3, 9), [5])]
        for pick in picks:
            assert_rows_close(pick.gradients, want[pick.rows], TIGHT)

    @every_case
    def test_pull_gives_each_position_its_own_answer(self, case):
        net, x = case.build(N)
        run = pb.infer(net, x, batch_size=10)
        jacobian_rows = run.pull([4, 4, 4], torch.eye(3, dtype=x.dtype))
        for k in range(3):
            want = by_loop(net, x[4:5], lambda y, i, k=k: y[k])
            assert_rows_close(jacobian_rows[k : k + 1], want, TIGHT)

    @every_case
    def test_gradient_of_an_output(self, case):
        net, x = case.build(N)
        run = pb.infer(net, x, batch_size=10)
        top = run.outputs.argmax(1)
        want = by_loop(net, x, lambda y, i: y[top[i]])
        assert_rows_close(run.gradient_of(top), want, TIGHT)
        want = by_loop(net, x, lambda y, i: y[2])
        assert_rows_close(run.gradient_of(2, rows=[8, 1]), want[[8, 1]], TIGHT)

    @pytest.mark.parametrize("batch_size", [1, 7, 8, 36, 37, 1000])
    def test_any_batch_size(self, batch_size):
        net, x = CASES[1].build(N)
        want, _ = by_one_graph(net, x, lambda y: summed(y, labels()))
        run = pb.infer(net, x, batch_size=batch_size)
        summed(run.outputs, labels()).backward()
        assert_rows_close(run.input_gradients(), want, TIGHT)


class TestTheCheckCanFail:
    @pytest.mark.parametrize(
        "spoil",
        [
            lambda g: g * 1.001,
            lambda g: g.roll(1, 0),
            lambda g: g.transpose(2, 3),
            torch.zeros_like,
            lambda g: g.float(),
        ],
        ids=["scaled", "shifted", "transposed", "zero", "dtype"],
    )
    def test_a_wrong_gradient_is_noticed(self, spoil):
        net, x = CASES[1].build(12)
        want, _ = by_one_graph(net, x, lambda y: y.square().sum())
        assert_rows_close(want.clone(), want, TIGHT)
        with pytest.raises(AssertionError):
            assert_rows_close(spoil(want), want, TIGHT)

    def test_zero_against_zero_compares_nothing(self):
        with pytest.raises(AssertionError, match="nothing was compared"):
            assert_rows_close(torch.zeros(2, 3), torch.zeros(2, 3), TIGHT)


class TestCotangents:
    def test_they_add_up_and_stay_until_cleared(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        run.outputs[3].sum().backward()
        once = run.input_gradients(3)
        assert torch.equal(run.input_gradients(3), once)
        run.outputs[3].sum().backward()
        assert_rows_close(run.input_gradients(3), 2 * once, TIGHT)
        run.clear_cotangents()
        assert run.outputs.grad is None

    def test_a_row_without_one_gets_zeros_and_is_not_run(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        run.outputs[3].sum().backward()
        seen = []
        net.register_forward_hook(lambda m, args, y: seen.append(len(y)))
        assert not run.input_gradients([5, 6]).any()
        assert seen == []
        assert run.input_gradients([5, 3])[1].any()
        assert seen == [8]

    def test_without_any_loss_there_is_nothing_to_pull(self):
        run = pb.infer(*CASES[0].build(N))
        with pytest.raises(GradientError, match=r"no loss was back-propagated .*run\.pick"):
            run.input_gradients()

    def test_no_rows_are_an_empty_answer(self):
        net, x = CASES[1].build(N)
        run = pb.infer(net, x)
        run.outputs.sum().backward()
        assert run.input_gradients([]).shape == (0, 2, 8, 8)
        assert run.pull([], run.outputs[:0].detach()).shape == (0, 2, 8, 8)

    def test_the_order_and_repetition_of_rows_are_the_callers(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        run.outputs.square().sum().backward()
        everything = run.input_gradients()
        assert torch.equal(run.input_gradients([-1, 3, 3, 0]), everything[[-1, 3, 3, 0]])
        assert torch.equal(run.input_gradients(slice(None, None, -2)), everything.flip(0)[::2])
        mask = torch.arange(N) % 5 == 0
        assert torch.equal(run.input_gradients(mask), everything[mask])
        assert torch.equal(run.input_gradients(mask.numpy()), everything[mask])


class TestPicks:
    def test_reading_one_runs_all_that_wait_in_full_batches(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x, batch_size=16)
        picks = [run.pick(i, summed, labels()) for i in range(32)]
        seen = []
        net.register_forward_hook(lambda m, args, y: seen.append(len(y)))
        assert not picks[0].ready
        assert picks[7].gradients.shape == (1, 5)
        assert seen == [16, 16]
        assert all(pick.ready for pick in picks)
        assert picks[0].gradients is picks[0].gradients
        assert seen == [16, 16]

    def test_a_forgotten_pick_costs_nothing(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x, batch_size=16)
        run.pick(slice(None), summed, labels())
        held = run.pick(0, summed, labels())
        seen = []
        net.register_forward_hook(lambda m, args, y: seen.append(len(y)))
        assert held.gradients.any()
        assert seen == [8]

    def test_a_loss_a_row_is_summed(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        rows = [1, 2, 9]
        one = run.pick(rows, lambda y, t: cross_entropy(y, t, reduction="none"), labels())
        two = run.pick(rows, summed, labels())
        assert torch.equal(one.gradients, two.gradients)
        assert one.loss.shape == (3,)

    def test_a_mean_is_the_callers_own_scale(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        mean = run.pick(slice(0, 4), cross_entropy, labels())
        total = run.pick(slice(0, 4), summed, labels())
        assert_rows_close(mean.gradients * 4, total.gradients, TIGHT)

    def test_numpy_and_list_arguments(self):
        net, x = CASES[0].build(N)
        run = pb.infer(net, x)
        want = run.pick([2, 5], summed, labels()).gradients
        assert torch.equal(run.pick([2, 5], summed, labels().numpy()).gradients, want)
        names = [str(i) for i in range(N)]
        seen = []
        run.pick([2, 5], lambda y, n: (seen.append(n), y.sum())[1], names)
        assert seen == [["2", "5"]]

    def test_it_says_what_it_is(self):
        run = pb.infer(*CASES[0].build(N))
        pick = run.pick([0, 1], torch.sum)
        assert repr(pick).endswith("waiting)")
        assert "1 picks waiting" in repr(run)
        run.flush()
        assert repr(pick).endswith("computed)")


class TestErrors:
    @pytest.fixture
    def run(self):
        return pb.infer(*CASES[0].build(N))

    def test_an_argument_that_is_not_one_value_a_row(self, run):
        with pytest.raises(
            InputError, match=r"one value for each of all 37 rows.*got 2.*Close over"
        ):
            run.pick([0, 1], summed, labels()[:2])
        with pytest.raises(InputError, match="got float"):
            run.pick([0, 1], lambda y, t: y.sum() * t, 2.0)

    def test_a_constant_loss(self, run):
        with pytest.raises(UnconnectedInputError, match="constant, an argmax, or a detach"):
            run.pick([0], lambda y: y.detach().sum())

    def test_rows_out_of_range(self, run):
        with pytest.raises(InputError, match=r"run\.pull: expected row numbers below 37"):
            run.pull([37], torch.ones(1, 3))
        with pytest.raises(InputError, match="expected rows as numbers"):
            run.input_gradients([0.5])

    def test_cotangents_that_do_not_fit(self, run):
        with pytest.raises(ShapeError, match=r"\[2, 3\].*got \[3, 2\]"):
            run.pull([0, 1], torch.ones(3, 2, dtype=torch.float64))
        with pytest.raises(DtypeError, match="rounded silently"):
            run.pull([0, 1], torch.ones(2, 3))
        with pytest.raises(InputError, match=r"container of run\.outputs"):
            run.pull([0, 1], {"y": torch.ones(2, 3)})

    def test_an_index_that_is_none_of_the_outputs(self, run):
        with pytest.raises(InputError, match="below 3"):
            run.gradient_of(3)
        with pytest.raises(InputError, match="1 entries"):
            run.gradient_of(())
        with pytest.raises(InputError, match="one integer for each of the 2 rows"):
            run.gradient_of(torch.tensor([0, 1, 2]), rows=[0, 1])
        with pytest.raises(InputError, match=r"one of the model's outputs \[''\]"):
            run.gradient_of(0, output="logits")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"batch_size": 0}, "batch_size to be a positive integer, got 0"),
            ({"smallest_batch": -1}, "smallest_batch"),
            ({"coupled": "rows"}, "None or 'batch', got 'rows'"),
            ({"keep": "all"}, "'none', 'auto' or a number of bytes, got 'all'"),
            ({"wrt": "image"}, "wrt to name inputs among"),
        ],
    )
    def test_options(self, options, words):
        with pytest.raises(InputError, match=words):
            pb.infer(*CASES[0].build(4), **options)
