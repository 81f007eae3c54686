"""Adam on one cycle, against a plain loop."""

import pytest
import torch
from tests.learning.problems import mlp, random_data
from tests.references import assert_close
from torch import nn

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin
from pullback.learning.optimizers import AdamStepper, loss_terms, one_cycle


def adam(twin, data, *, epochs=4, batch_size=5, peak=0.01, decay=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    loss = DifferentialLoss.of(data)
    return AdamStepper(twin, loss, data, epochs, batch_size, peak, decay, generator)


def weights(twin):
    return [p.detach().clone() for p in twin.parameters()]


class TestOneCycle:
    @pytest.mark.parametrize("steps", [1, 2, 3, 7, 100, 1_600])
    def test_up_to_the_peak_and_down_to_nothing(self, steps):
        rates = [one_cycle(step, steps, 0.01) for step in range(steps)]
        top = rates.index(max(rates))

        assert all(0 < rate <= 0.01 * 1.0001 for rate in rates)
        assert rates == sorted(rates[: top + 1]) + sorted(rates[top + 1 :], reverse=True)
        assert steps < 100 or (max(rates) > 0.00999 and rates[-1] < 1e-6 and top == steps // 4)

    def test_the_reference_schedule(self):
        model = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            model, max_lr=1.0, total_steps=401, pct_start=0.25, cycle_momentum=False
        )
        for step in range(400):
            # Both are cosines through the same three points; ends and phase differ by a step.
            assert one_cycle(step, 400, 1.0) == pytest.approx(schedule.get_last_lr()[0], abs=0.02)
            model.step()
            schedule.step()


class TestAdam:
    @pytest.mark.parametrize(("rows", "size"), [(23, 5), (20, 5), (7, 100), (11, 2)])
    def test_every_row_once_an_epoch_in_batches_of_equal_size(self, rows, size):
        stepper = adam(Twin(mlp(inputs=1)), random_data(rows), batch_size=size)
        sizes = stepper.bounds.diff()
        first, second = stepper.shuffle(), stepper.shuffle()

        assert stepper.bounds[[0, -1]].tolist() == [0, rows]
        assert len(sizes) == stepper.batches
        assert sizes.max() - sizes.min() <= 1
        assert sorted(first.tolist()) == list(range(rows))
        assert not torch.equal(first, second)

    def test_equals_a_loop_written_out(self):
        data = random_data(rows=12)
        stepper, twin = (
            adam(Twin(mlp(outputs=2)), data, epochs=3, batch_size=4),
            Twin(mlp(outputs=2)),
        )
        reports = [stepper.run_epoch() for _ in range(3)]

        loss, optimizer = DifferentialLoss.of(data), torch.optim.Adam(twin.parameters(), lr=0.0)
        generator, step = torch.Generator().manual_seed(0), 0
        for report in reports:
            seen = []
            for rows in torch.randperm(12, generator=generator).split(4):
                optimizer.param_groups[0]["lr"] = one_cycle(step, 9, 0.01)
                optimizer.zero_grad()
                total = sum(loss_terms(twin, loss, data.take(rows)).values())
                total.backward()
                optimizer.step()
                seen.append(float(total.detach()))
                step += 1
            assert report["total"] == pytest.approx(sum(seen) / 3, rel=1e-12)
            assert report["total"] == pytest.approx(sum(report.values()) / 2, rel=1e-12)
        for got, expected in zip(weights(stepper.twin), weights(twin), strict=True):
            assert_close(got, expected, tolerance=1e-9)

    def test_weight_decay_is_decoupled(self):
        data = random_data()
        plain, decayed = (
            adam(Twin(mlp(outputs=2)), data, decay=d, batch_size=9) for d in (0.0, 0.5)
        )
        before = weights(plain.twin)
        plain.run_epoch()
        decayed.run_epoch()
        rate = plain.learning_rate

        for start, one, two in zip(before, weights(plain.twin), weights(decayed.twin), strict=True):
            assert_close(two, one - 0.5 * rate * start, tolerance=1e-9)


def test_continues_exactly():
    data = random_data(rows=20)
    whole, first, second = (adam(Twin(mlp(outputs=2)), data, epochs=90) for _ in range(3))
    for _ in range(3):
        whole.run_epoch()
    first.run_epoch()
    second.twin.load_state_dict(first.twin.state_dict())
    second.load_state(first.state())
    for _ in range(2):
        second.run_epoch()

    assert second.epoch == whole.epoch
    assert all(map(torch.equal, weights(whole.twin), weights(second.twin)))


def test_frozen_weights_stay():
    twin = Twin(mlp(outputs=2))
    twin.module.layers[0].weight.requires_grad_(False)
    before = weights(twin)
    adam(twin, random_data(rows=20)).run_epoch()
    moved = [not torch.equal(a, b) for a, b in zip(before, weights(twin), strict=True)]

    assert moved == [False, True, True, True, True, True]


class TestTerms:
    def test_values_alone_compute_no_derivative(self):
        class Unwilling(nn.Linear):
            def value_and_jacobian(self, x):
                raise AssertionError("not asked for")

        data = random_data(outputs=1)
        plain = DifferentialData(data.x, data.y)
        terms = loss_terms(Twin(Unwilling(3, 1).double()), DifferentialLoss.of(plain), plain)

        assert list(terms) == ["value"]

    def test_all_kinds_of_labels(self):
        data = random_data()
        terms = loss_terms(Twin(mlp(outputs=2)), DifferentialLoss.of(data), data)

        assert list(terms) == ["value", "derivative", "directional", "second_order"]

    def test_directional_labels_are_jacobians_along_v(self):
        data, twin = random_data(), Twin(mlp(outputs=2))
        y, jac = twin(data.x)
        along = torch.stack([jac[n] @ data.directions[n] for n in range(6)])
        exact = DifferentialData(
            data.x, y.detach(), directions=data.directions, dydv=along.detach()
        )

        assert loss_terms(twin, DifferentialLoss.of(exact), exact)["directional"] < 1e-25
