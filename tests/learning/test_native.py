"""The compiled step gives the gradients and the weights that autograd and torch's AdamW give."""

import os
import subprocess
import sys

import pytest
import torch

from pullback.errors import NativeBuildError
from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.native import build
from pullback.learning.native.kernel import ACTIVATIONS, Kernel, is_possible
from pullback.learning.native.stepper import NativeAdamStepper
from pullback.learning.networks import MLP, Twin
from pullback.learning.optimizers import AdamStepper, loss_terms


def problem(outputs=1, *, dtype=torch.float64, rows=77, unknown=True, weights=True):
    # 77 rows: no multiple of any block, so that the last one is short.
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y, dydx = draw(rows, 5), draw(rows, outputs), draw(rows, outputs, 5)
    if unknown:
        y[3], dydx[5, :, 2], dydx[9] = torch.nan, torch.nan, torch.nan
    sample_weight, dydx_weight = (draw(rows).abs(), draw(5).abs()) if weights else (None, None)
    data = DifferentialData(x, y, dydx, sample_weight=sample_weight, dydx_weight=dydx_weight)
    return data.map(lambda tensor: tensor.to(dtype)), DifferentialLoss.of(data).to(dtype)


def network(hidden=(7, 20), outputs=1, activation="softplus", omega_0=1.0, dtype=torch.float64):
    net = MLP(
        5, outputs, hidden, activation, omega_0=omega_0, dtype=dtype,
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    with torch.no_grad():
        for layer in net.layers:
            layer.bias.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(2))
    return Twin(net)


def gradient_by_autograd(twin, loss, batch):
    twin.zero_grad()
    terms = loss_terms(twin, loss, batch)
    torch.stack(list(terms.values())).sum().backward()
    parameters = [p for layer in twin.module.layers for p in (layer.weight, layer.bias)]
    return torch.cat([p.grad.reshape(-1) for p in parameters]), terms


def assert_same_gradient(actual, expected, tolerance):
    assert float((actual - expected).abs().max()) <= tolerance * float(expected.abs().max())


def test_it_is_built_here():
    assert build.why_not() == ""


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("omega_0", [1.0, 2.0])
@pytest.mark.parametrize(("hidden", "outputs"), [((7, 20), 1), ((13, 5, 33), 3), ((1,), 2)])
def test_gradient_equals_autograd(activation, omega_0, hidden, outputs):
    data, loss = problem(outputs)
    twin = network(hidden, outputs, activation, omega_0)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:70]
    expected, terms = gradient_by_autograd(twin, loss, data.take(order))

    actual, value, derivative = Kernel(twin, loss, data).gradient(order)

    # Two orders of summation of some hundred terms in float64.
    assert_same_gradient(actual, expected, 1e-13)
    assert value == pytest.approx(terms["value"].item(), rel=1e-13)
    assert derivative == pytest.approx(terms["derivative"].item(), rel=1e-13)


def test_the_comparison_can_fail():
    data, loss = problem()
    expected, _ = gradient_by_autograd(network(), loss, data)
    shifted, _ = gradient_by_autograd(network(), loss, data.take(torch.arange(77).roll(1)[:76]))

    for wrong in (expected * 1.001, expected.roll(1), shifted):
        with pytest.raises(AssertionError):
            assert_same_gradient(wrong, expected, 1e-13)


def test_values_alone():
    data, _ = problem(unknown=False, weights=False)
    data = DifferentialData(data.x, data.y)
    loss = DifferentialLoss.of(data)
    twin = network()
    expected, _ = gradient_by_autograd(twin, loss, data)

    actual, _, derivative = Kernel(twin, loss, data).gradient(torch.arange(len(data)))

    assert_same_gradient(actual, expected, 1e-13)
    assert derivative == 0.0


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_far_out_activations_stay_finite_and_right(size):
    data, loss = problem(unknown=False)
    twin = network((8, 8))
    with torch.no_grad():
        twin.module.layers[0].weight.mul_(size)
    expected, _ = gradient_by_autograd(twin, loss, data)

    actual, _, _ = Kernel(twin, loss, data).gradient(torch.arange(len(data)))

    assert_same_gradient(actual, expected, 1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-3)])
def test_training_equals_adamw(dtype, tolerance):
    data, loss = problem(dtype=dtype, rows=200)
    steppers = []
    for kind in (AdamStepper, NativeAdamStepper):
        generator = torch.Generator().manual_seed(5)
        twin = network((20, 20), dtype=dtype)
        steppers.append(kind(twin, loss, data, 20, 32, 0.01, 0.1, generator))

    for _ in range(20):
        slow, fast = (stepper.run_epoch() for stepper in steppers)

    # Rounding grows along 120 steps of Adam, which divides by small second moments.
    assert fast == pytest.approx(slow, rel=tolerance)
    pairs = zip(*(stepper.twin.parameters() for stepper in steppers), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_state_continues_to_the_same_bits():
    data, loss = problem(rows=100)

    def stepper():
        generator = torch.Generator().manual_seed(5)
        return NativeAdamStepper(network(), loss, data, 6, 32, 0.01, 0.0, generator)

    whole, first, second = stepper(), stepper(), stepper()
    for _ in range(6):
        whole.run_epoch()
    for _ in range(3):
        first.run_epoch()
    second.twin.load_state_dict(first.twin.state_dict())
    second.load_state(first.state())
    for _ in range(3):
        second.run_epoch()

    for ours, theirs in zip(second.twin.parameters(), whole.twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "gelu"},
        {"activation": torch.tanh},
        {"hidden": ()},
        {"hidden": (129,)},
    ],
)
def test_what_it_has_not_got_is_left_to_torch(change):
    data, _ = problem()

    assert is_possible(network(), data)
    assert not is_possible(network(**change), data)


def test_frozen_weights_and_second_order_labels_are_left_to_torch():
    data, _ = problem()
    frozen = network()
    frozen.module.layers[0].weight.requires_grad_(False)
    v = torch.ones_like(data.x)
    second = DifferentialData(data.x, data.y, data.dydx, directions=v, hvp=data.dydx)

    assert not is_possible(frozen, data)
    assert not is_possible(network(), second)


def test_denormal_numbers_survive_loading_it():
    program = (
        "from pullback.learning.native.build import library\n"
        "assert library() is not None\n"
        "tiny = 5e-324\n"
        "assert tiny * 1.0 != 0.0 and tiny + 0.0 == 5e-324, 'denormals are flushed'\n"
        "print('kept')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.stdout == "kept\n", result.stderr


def test_without_a_compiler_it_says_why(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NativeBuildError, match=r"no C\+\+ compiler found .*Training works without"):
        build.build()


def test_a_failing_compiler_is_quoted_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", f"{sys.executable} -c raise(SystemExit('no-licence'))")

    with pytest.raises(NativeBuildError, match="no-licence"):
        build.build()

    assert list((tmp_path / "pullback").iterdir()) == []


def test_it_can_be_switched_off():
    program = (
        "import numpy as np, pullback as pb\n"
        "x = np.linspace(-1, 1, 64)[:, None]\n"
        "model = pb.DifferentialRegressor(optimizer='adam', epochs=3, random_state=0)\n"
        "model.fit(x, x[:, 0] ** 2, 2 * x)\n"
        "print(model.history_.events[1])"
    )
    environment = {**os.environ, "PULLBACK_NATIVE": "0"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )

    assert result.stdout == (
        "the compiled step is not there, torch's operations were used: "
        "switched off by PULLBACK_NATIVE=0\n"
    ), result.stderr
