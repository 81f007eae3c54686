"""The contestants of speed.py, each in a process of its own: python -m benchmarks.contestants NAME.

All train the same perceptron on the same rows with Adam: on one line of standard input comes the
job, as JSON (see `Job`). Then each line "epoch" is answered by the seconds a step of one epoch
takes, and "train" by the predictions of a network trained from the start, in a file. Packages are
imported in here, so that a process knows its own alone, and one that is missing is told apart.

Peers do what their users do who want speed. JAX: an explicit twin pass, one jitted `lax.scan` an
epoch, weights donated. TensorFlow: the reference notebooks' way, a graph with an explicit twin pass
and one `session.run` a step. jenn: its own `fit`. torch: `autograd.grad(create_graph=True)` in a
plain loop, rows shuffled once an epoch.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Job:
    """What to train.

    Attributes:
        path: an npz with x [N, D], y [N, 1], dydx [N, D], and test rows x_test [T, D].
        hidden: widths.
        activation: "softplus" or "tanh".
        batch: rows a step.
        epochs: passes over the rows.
        peak: the highest learning rate.
        defaults: pullback takes its own batch, epochs and rate, as its users do.
    """

    path: str
    hidden: tuple[int, ...]
    activation: str
    batch: int
    epochs: int = 100
    peak: float = 0.01
    defaults: bool = False


@dataclass(frozen=True)
class Rows:
    """Standardised training rows and what a loss needs: in numpy, the same for all peers."""

    x: np.ndarray
    y: np.ndarray
    dydx: np.ndarray
    x_test: np.ndarray
    mean: tuple[np.ndarray, np.ndarray]
    scale: tuple[np.ndarray, np.ndarray]

    @classmethod
    def load(cls, path: str) -> "Rows":
        """The reference notebooks' standardising."""
        with np.load(path) as file:
            x, y, dydx, x_test = (file[name] for name in ("x", "y", "dydx", "x_test"))
        (x_mean, x_scale), (y_mean, y_scale) = ((a.mean(0), a.std(0) + 1e-8) for a in (x, y))
        return cls(
            *((part).astype(np.float32) for part in (
                (x - x_mean) / x_scale, (y - y_mean) / y_scale, dydx * x_scale / y_scale,
                (x_test - x_mean) / x_scale,
            )), (x_mean, y_mean), (x_scale, y_scale),
        )  # fmt: skip

    @property
    def weights(self) -> tuple[float, np.ndarray]:
        """Factors of values and of each derivative in the loss, a mean over rows."""
        d = self.x.shape[1]
        slopes = 1.0 / np.sqrt(np.mean(self.dydx**2, axis=0))
        return 1.0 / (1.0 + d), (slopes**2 / (1.0 + d)).astype(np.float32)

    def unscaled(self, y: Any, dydx: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predictions in the units of the labels: y [T, 1], dydx [T, D]."""
        y_scale = self.scale[1]
        y, dydx = np.asarray(y), np.asarray(dydx)
        return y * y_scale + self.mean[1], dydx * y_scale / self.scale[0]


def initial_weights(widths: list[int], seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """W [in, out] and b [out] of each layer."""
    rng = np.random.default_rng(seed)
    return [
        ((rng.standard_normal((a, b)) / np.sqrt(a)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]


def rates(job: Job, steps: int) -> np.ndarray:
    """The reference schedule, per step: up to the peak, and down by hundreds."""
    at = np.arange(steps) / steps
    marks, values = [0.0, 0.2, 0.6, 0.9, 1.0], [1e-8, 1.0, 0.1, 1e-5, 1e-7]
    return (job.peak * np.interp(at, marks, values)).astype(np.float32)


class Contestant(Protocol):
    """Built from a job; imports and compiles where its package does."""

    def epoch(self) -> int:
        """Train for one epoch; how many steps that were."""

    def predict(self) -> tuple[np.ndarray, np.ndarray]:
        """Values [T, 1] and derivatives [T, D] on the test rows, in the units of the labels."""


class Pullback:
    """The stepper that `fit` takes, and the estimator."""

    def __init__(self, job: Job, threads: int) -> None:
        import torch

        from pullback.learning.data import DifferentialData

        torch.set_num_threads(threads)
        self.job = job
        if job.defaults:
            return
        rows = Rows.load(job.path)
        x, y, dydx = (torch.from_numpy(part) for part in (rows.x, rows.y, rows.dydx))
        self.stepper = self._stepper(DifferentialData(x, y, dydx.unsqueeze(1)))

    def _stepper(self, data: Any) -> Any:
        import torch

        from pullback.learning.loss import DifferentialLoss
        from pullback.learning.networks import MLP, Twin
        from pullback.learning.recipe import Recipe
        from pullback.learning.training import Options, _stepper

        job, generator = self.job, torch.Generator().manual_seed(0)
        net = MLP(data.x.shape[1], 1, job.hidden, job.activation, generator=generator)
        recipe = Recipe("adam", 10_000, job.batch, job.peak, 0.0, "")
        return _stepper(Twin(net), DifferentialLoss.of(data), data, recipe, Options(), generator)

    def epoch(self) -> int:
        self.stepper.run_epoch()
        return self.stepper.batches

    def predict(self) -> tuple[np.ndarray, np.ndarray]:
        from pullback.learning import DifferentialRegressor

        with np.load(self.job.path) as file:
            x, y, dydx, x_test = (file[name] for name in ("x", "y", "dydx", "x_test"))
        model = DifferentialRegressor(hidden=self.job.hidden, random_state=0, progress=False)
        model.fit(x, y[:, 0], dydx)
        value, slopes = model.predict(x_test, return_gradient=True)
        return value[:, None], slopes


class Peer:
    """What peers share: rows, weights, the schedule and the order of rows."""

    def __init__(self, job: Job) -> None:
        self.job, self.rows = job, Rows.load(job.path)
        self.weights = initial_weights([self.rows.x.shape[1], *job.hidden, 1])
        self.steps = max(1, len(self.rows.x) // job.batch)
        self.schedule = rates(job, self.steps * job.epochs).reshape(job.epochs, self.steps)
        self.order, self.done = np.random.default_rng(0), 0

    def next_epoch(self) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers [steps, batch] and learning rates [steps] of the next epoch."""
        rows = self.order.permutation(len(self.rows.x))[: self.steps * self.job.batch]
        rates = self.schedule[self.done % self.job.epochs]
        self.done += 1
        return rows.reshape(self.steps, self.job.batch), rates

    def epoch(self) -> int:
        raise NotImplementedError

    def predict(self) -> tuple[np.ndarray, np.ndarray]:
        for _ in range(self.job.epochs):
            self.epoch()
        return self.rows.unscaled(*self.twin(self.rows.x_test))

    def twin(self, x: np.ndarray) -> tuple[Any, Any]:
        raise NotImplementedError


class Torch(Peer):
    """A plain loop: double backward, torch's Adam, rows shuffled once an epoch."""

    def __init__(self, job: Job, threads: int) -> None:
        import torch
        from torch import nn

        super().__init__(job)
        torch.set_num_threads(threads)
        self.torch = torch
        layers: list[nn.Module] = []
        for i, (weight, bias) in enumerate(self.weights):
            layer = nn.Linear(*weight.shape)
            layer.load_state_dict({"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)})
            layers += [layer, nn.Softplus() if job.activation == "softplus" else nn.Tanh()]
        self.net = nn.Sequential(*layers[:-1])
        self.data = [torch.tensor(p) for p in (self.rows.x, self.rows.y, self.rows.dydx)]
        self.factors = torch.tensor(self.rows.weights[1])
        self.adam = torch.optim.Adam(self.net.parameters(), lr=job.peak)

    def twin(self, x: Any) -> tuple[Any, Any]:
        x = self.torch.as_tensor(x).requires_grad_()
        y = self.net(x)
        (dydx,) = self.torch.autograd.grad(y.sum(), x, create_graph=True)
        return (y, dydx) if self.training else (y.detach(), dydx.detach())

    training = False

    def epoch(self) -> int:
        self.training = True
        order, rates = self.next_epoch()
        shuffled = [part[self.torch.from_numpy(order)] for part in self.data]
        for *batch, rate in zip(*shuffled, rates.tolist(), strict=True):
            self.step(*batch, rate)
        self.training = False
        return len(rates)

    def step(self, x: Any, y: Any, dydx: Any, rate: float) -> None:
        self.adam.param_groups[0]["lr"] = rate
        self.adam.zero_grad()
        y_hat, dydx_hat = self.twin(x)
        loss = self.rows.weights_of_values * (y_hat - y).square().mean()
        loss = loss + (self.factors * (dydx_hat - dydx).square()).sum() / len(x)
        loss.backward()
        self.adam.step()
