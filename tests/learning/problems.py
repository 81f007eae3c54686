"""Small problems with exact derivatives, and slow oracles, shared by the tests of learning."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pullback.learning.data import DifferentialData
from pullback.learning.networks import MLP

SMOOTH = ("elu", "gelu", "sigmoid", "silu", "sin", "softplus", "tanh")
PIECEWISE_LINEAR = ("identity", "leaky_relu", "relu")


def mlp(inputs=3, outputs=1, hidden=(7, 5), activation="tanh", seed=0, **more) -> MLP:
    """A float64 network whose biases are not zero."""
    generator = torch.Generator().manual_seed(seed)
    net = MLP(inputs, outputs, hidden, activation, generator=generator, **more).double()
    with torch.no_grad():
        for layer in net.layers:
            layer.bias.normal_(generator=generator)
    return net


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def as_sequential(net: MLP) -> nn.Sequential:
    """The same function, built of torch's own parts, and sharing its weights."""
    parts: list[nn.Module] = []
    for layer in net.layers[:-1]:
        parts += [layer, Times(net.omega_0), Apply(net.activation.function)]
    return nn.Sequential(*parts, net.layers[-1])


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def field(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y = sin(x₀) + x₀ x₁²/2 with its gradient: x [N, 2], y [N], dydx [N, 2]."""
    x = np.random.default_rng(seed).uniform(-1.5, 1.5, (rows, 2))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 0] * x[:, 1] ** 2
    dydx = np.stack([np.cos(x[:, 0]) + 0.5 * x[:, 1] ** 2, x[:, 0] * x[:, 1]], axis=1)
    return x, y, dydx


def field_hessian(x: np.ndarray) -> np.ndarray:
    """[N, 2, 2] of `field`."""
    return np.stack([np.stack([-np.sin(x[:, 0]), x[:, 1]], 1), np.stack([x[:, 1], x[:, 0]], 1)], 1)


def two_fields(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`field` and 100 times a wave: x [N, 2], y [N, 2], dydx [N, 2, 2]."""
    x, y, dydx = field(rows, seed)
    wave = np.stack([np.cos(x[:, 0] - x[:, 1]), -np.cos(x[:, 0] - x[:, 1])], axis=1)
    return (
        x,
        np.stack([y, 100.0 * np.sin(x[:, 0] - x[:, 1])], axis=1),
        np.stack([dydx, 100.0 * wave], axis=1),
    )


def random_data(rows=6, inputs=3, outputs=2, seed=0) -> DifferentialData:
    """Every kind of label, all of it noise."""
    n, d, k = rows, inputs, outputs
    return DifferentialData(
        draw(n, d, seed=seed), draw(n, k, seed=seed + 1), draw(n, k, d, seed=seed + 2),
        directions=draw(n, d, seed=seed + 3), dydv=draw(n, k, seed=seed + 4),
        hvp=draw(n, k, d, seed=seed + 5),
    )  # fmt: skip


def differences_in_weights(loss: Callable[[], Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Central differences of a loss in each single weight; float64."""
    step = 1e-5
    slopes = {}
    for name, parameter in module.named_parameters():
        flat, slope = parameter.data.reshape(-1), torch.zeros(parameter.numel()).double()
        for i in range(len(flat)):
            kept = float(flat[i])
            flat[i] = kept + step
            above = float(loss().detach())
            flat[i] = kept - step
            slope[i] = (above - float(loss().detach())) / (2 * step)
            flat[i] = kept
        slopes[name] = slope.reshape(parameter.shape)
    return slopes


class Interrupt:
    """Raises on the n-th evaluation of the loss in training: `monkeypatch` it over loss_terms."""

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        self.at, self.calls = at, 0
        self.error = KeyboardInterrupt() if error is None else error

    def install(self, monkeypatch) -> None:
        from pullback.learning import full_batch, optimizers

        original = optimizers.loss_terms

        def loss_terms(*arguments):
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            return original(*arguments)

        for module in (optimizers, full_batch):
            monkeypatch.setattr(module, "loss_terms", loss_terms)
