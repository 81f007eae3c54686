"""Full batches: against least squares, finite differences and the other route to the gradient."""

import pytest
import torch
from tests.learning.problems import Interrupt, field, mlp, random_data
from tests.references import assert_close

from pullback.learning import full_batch
from pullback.learning.data import DifferentialData
from pullback.learning.full_batch import ITERATIONS_A_LOOK, METHODS, FullBatchLoss, FullBatchStepper
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.optimizers import loss_terms

every_method = pytest.mark.parametrize("method", METHODS)


def stepper(method, twin, data, *, epochs=200, decay=0.0):
    return FullBatchStepper(method, twin, DifferentialLoss.of(data), data, epochs, decay)


def weights(twin):
    return [p.detach().clone() for p in twin.parameters()]


def linear_problem():
    """Values and derivatives with noise, and a linear network: the loss is a least-squares sum."""
    data = random_data(rows=30, outputs=1)
    data = DifferentialData(data.x, data.y, data.dydx)
    loss = DifferentialLoss.of(data)
    by_value, by_slope = loss.value.sqrt(), loss.derivative[0].sqrt()
    rows = [torch.cat([data.x, torch.ones(30, 1).double()], 1) * by_value]
    rows += [torch.eye(4).double()[j].expand(30, 4) * by_slope[j] for j in range(3)]
    right = [data.y[:, 0] * by_value, *(data.dydx[:, 0, j] * by_slope[j] for j in range(3))]
    return data, torch.linalg.lstsq(torch.cat(rows), torch.cat(right)).solution


class TestLoss:
    @pytest.mark.parametrize("decay", [0.0, 0.3])
    @pytest.mark.parametrize("activation", ["tanh", "gelu"])
    def test_gradient_against_differences(self, decay, activation):
        """Tanh has a compiled gradient, gelu has autograd's."""
        data = random_data(rows=12)
        net = mlp(outputs=2, hidden=(5,), activation=activation)
        loss = FullBatchLoss(Twin(net), DifferentialLoss.of(data), data, decay)
        start = loss.weights.clone()
        _, gradient = loss(start)

        def along(i):
            step = 1e-6 * torch.eye(len(start), dtype=start.dtype)[i]
            return (loss(start + step)[0] - loss(start - step)[0]) / 2e-6

        expected = torch.tensor([along(i) for i in range(len(start))], dtype=start.dtype)
        assert_close(gradient, expected, tolerance=1e-7)

    def test_leaves_grad_alone(self):
        twin, data = Twin(mlp(outputs=2, activation="gelu")), random_data(rows=12)
        FullBatchLoss(twin, DifferentialLoss.of(data), data, 0.1)(
            torch.zeros(0).new_zeros(sum(p.numel() for p in twin.parameters()), dtype=torch.float64)
        )

        assert all(p.grad is None for p in twin.parameters())


class TestStepper:
    @every_method
    def test_finds_the_least_squares_solution(self, method):
        data, solution = linear_problem()
        twin = Twin(mlp(hidden=()))
        one = stepper(method, twin, data)
        while one.epoch < one.epochs:
            one.run_epoch()

        assert_close(torch.cat([w.reshape(-1) for w in weights(twin)]), solution, tolerance=1e-7)
        assert one.epochs < 200  # it ended the run itself

    @every_method
    def test_reports_the_loss_at_the_weights_it_leaves(self, method):
        data = random_data(rows=20)
        one = stepper(method, Twin(mlp(outputs=2)), data, epochs=100)
        first, second = one.run_epoch(), one.run_epoch()
        now = sum(float(t.detach()) for t in loss_terms(one.twin, one.loss, data).values())

        assert second["total"] == pytest.approx(now, rel=1e-12)
        assert second["total"] < first["total"]
        assert one.epoch == 2 * ITERATIONS_A_LOOK

    @every_method
    def test_takes_no_more_iterations_than_asked(self, method):
        one = stepper(method, Twin(mlp(outputs=2)), random_data(rows=20), epochs=25)
        one.run_epoch()
        one.run_epoch()

        assert one.epoch == 25

    @every_method
    def test_weight_decay_pulls_weights_but_no_biases(self, method):
        data = random_data(rows=20)
        norms = []
        for decay in (0.0, 1.0):
            one = stepper(method, Twin(mlp(outputs=2)), data, epochs=40, decay=decay)
            one.run_epoch()
            norms.append(sum(w.square().sum() for w in weights(one.twin) if w.ndim > 1))

        assert norms[1] < 0.5 * norms[0]

    @every_method
    def test_a_loss_of_nothing_ends_the_run(self, method):
        x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
        line = DifferentialData(x, 2 * x, torch.full((9, 1, 1), 2.0, dtype=torch.float64))
        one = stepper(method, Twin(mlp(inputs=1, hidden=())), line, epochs=4_000)
        while one.epoch < one.epochs:
            terms = one.run_epoch()

        assert one.epoch < 100
        assert terms["total"] <= full_batch.ENOUGH

    @every_method
    @pytest.mark.parametrize("at", [3, 9])
    def test_an_interruption_leaves_no_trial_point_behind(self, method, monkeypatch, at):
        data = random_data(rows=20)
        one = stepper(method, Twin(mlp(outputs=2, activation="gelu")), data)
        reached = one.run_epoch()["total"]
        Interrupt(at).install(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            one.run_epoch()
        monkeypatch.undo()

        now = sum(float(t.detach()) for t in loss_terms(one.twin, one.loss, data).values())
        assert now <= reached * (1 + 1e-12)

    @every_method
    def test_continues_exactly(self, method):
        data = random_data(rows=20)
        whole, first, second = (
            stepper(method, Twin(mlp(outputs=2)), data, epochs=90) for _ in range(3)
        )
        for _ in range(3):
            whole.run_epoch()
        first.run_epoch()
        second.twin.load_state_dict(first.twin.state_dict())
        second.load_state(first.state())
        for _ in range(2):
            second.run_epoch()

        assert second.epoch == whole.epoch
        assert all(map(torch.equal, weights(whole.twin), weights(second.twin)))

    @every_method
    def test_frozen_weights_stay(self, method):
        twin = Twin(mlp(outputs=2))
        twin.module.layers[0].weight.requires_grad_(False)
        before = weights(twin)
        stepper(method, twin, random_data(rows=20)).run_epoch()
        moved = [not torch.equal(a, b) for a, b in zip(before, weights(twin), strict=True)]

        assert moved == [False, True, True, True, True, True]

    @every_method
    @pytest.mark.parametrize("decay", [0.0, 1e-2])
    def test_the_compiled_gradient_takes_the_same_way(self, method, monkeypatch, decay):
        data = random_data(rows=40)
        data = DifferentialData(data.x, data.y, data.dydx)
        steppers = []
        for possible in (True, False):
            monkeypatch.setattr(full_batch, "is_possible", lambda *_, possible=possible: possible)
            steppers.append(stepper(method, Twin(mlp(outputs=2)), data, epochs=20, decay=decay))
            steppers[-1].run_epoch()

        assert [one.objective.kernel is not None for one in steppers] == [True, False]
        for ours, theirs in zip(*(weights(one.twin) for one in steppers), strict=True):
            # Rounding of 1e-16, along twenty line searches.
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


def test_the_matrix_takes_a_network_far_lower():
    """What the dense method is here for: the same network, labels and iterations."""
    x, y, dydx = (torch.from_numpy(a) for a in field(60))
    data = DifferentialData(x, y[:, None], dydx[:, None])
    reached = {}
    for method in METHODS:
        one = stepper(method, Twin(mlp(inputs=2, hidden=(12, 12))), data, epochs=500)
        while one.epoch < one.epochs:
            reached[method] = one.run_epoch()["total"]

    assert reached["broyden"] < 0.1 * reached["lbfgs"]
