"""The contestants of speed.py, each in a process of its own: python -m benchmarks.contestants NAME.

All train the same perceptron on the same rows with Adam: on one line of standard input comes the
job, as JSON (see `Job`). Then each line "epoch" is answered by the milliseconds a step of one epoch
takes, and any other, the name of a file, by training to the end and writing predictions there.
Packages are
imported in here, so that a process knows its own alone, and one that is missing is told apart.

Peers do what their users do who want speed. JAX: an explicit twin pass, one jitted `lax.scan` an
epoch, weights donated. TensorFlow: the reference notebooks' way, a graph with an explicit twin pass
and one `session.run` a step. jenn: its own `fit`. torch: `autograd.grad(create_graph=True)` in a
plain loop, rows shuffled once an epoch.
"""

import argparse
import itertools
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Values [T, 1] and derivatives [T, D].
Predictions = tuple[np.ndarray, np.ndarray]


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
            *(part.astype(np.float32) for part in (
                (x - x_mean) / x_scale, (y - y_mean) / y_scale, dydx * x_scale / y_scale,
                (x_test - x_mean) / x_scale,
            )), (x_mean, y_mean), (x_scale, y_scale),
        )  # fmt: skip

    @property
    def factors(self) -> tuple[float, np.ndarray]:
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
        for a, b in itertools.pairwise(widths)
    ]


def rates(job: Job, steps: int) -> np.ndarray:
    """The reference schedule, per step: up to the peak, and down by hundreds."""
    at = np.arange(steps) / steps
    marks, values = [0.0, 0.2, 0.6, 0.9, 1.0], [1e-8, 1.0, 0.1, 1e-5, 1e-7]
    return (job.peak * np.interp(at, marks, values)).astype(np.float32)


class Contestant(ABC):
    """Built from a job; imports and compiles where its package does."""

    @abstractmethod
    def epoch(self) -> int:
        """Train for one epoch; how many steps that were."""

    @abstractmethod
    def predict(self) -> Predictions:
        """Values [T, 1] and derivatives [T, D] on the test rows, in the units of the labels."""


class Pullback(Contestant):
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
        """See `Contestant`."""
        self.stepper.run_epoch()
        return self.stepper.batches

    def predict(self) -> Predictions:
        """See `Contestant`."""
        from pullback.learning import DifferentialRegressor

        with np.load(self.job.path) as file:
            x, y, dydx, x_test = (file[name] for name in ("x", "y", "dydx", "x_test"))
        model = DifferentialRegressor(hidden=self.job.hidden, random_state=0, progress=False)
        model.fit(x, y[:, 0], dydx)
        value, slopes = model.predict(x_test, return_gradient=True)
        return value[:, None], slopes


class Peer(Contestant):
    """What peers share: rows, weights, the schedule and the order of rows."""

    def __init__(self, job: Job) -> None:
        self.job, self.rows = job, Rows.load(job.path)
        self.factors = self.rows.factors
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

    def predict(self) -> Predictions:
        """See `Contestant`."""
        for _ in range(self.job.epochs):
            self.epoch()
        return self.rows.unscaled(*self.predicted())

    def predicted(self) -> tuple[Any, Any]:
        """The same from standardised rows, in standardised units."""
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
        for weight, bias in self.weights:
            layer = nn.Linear(*weight.shape)
            layer.load_state_dict({"weight": torch.tensor(weight.T), "bias": torch.tensor(bias)})
            layers += [layer, nn.Softplus() if job.activation == "softplus" else nn.Tanh()]
        self.net = nn.Sequential(*layers[:-1])
        self.data = [torch.tensor(p) for p in (self.rows.x, self.rows.y, self.rows.dydx)]
        self.adam = torch.optim.Adam(self.net.parameters(), lr=job.peak)

    def epoch(self) -> int:
        """See `Contestant`."""
        order, rates = self.next_epoch()
        shuffled = [part[self.torch.from_numpy(order)] for part in self.data]
        for *batch, rate in zip(*shuffled, rates.tolist(), strict=True):
            self.step(*batch, rate)
        return len(rates)

    def step(self, x: Any, y: Any, dydx: Any, rate: float) -> None:
        """One Adam step on x [B, D], y [B, 1], dydx [B, D]."""
        self.adam.param_groups[0]["lr"] = rate
        self.adam.zero_grad()
        y_hat, dydx_hat = self.twin(x)
        value, slopes = self.factors
        loss = value * (y_hat - y).square().mean()
        loss = loss + (self.torch.from_numpy(slopes) * (dydx_hat - dydx).square()).sum() / len(x)
        loss.backward()
        self.adam.step()

    def twin(self, x: Any) -> tuple[Any, Any]:
        """Values [B, 1] and derivatives [B, D]."""
        x = self.torch.as_tensor(x).requires_grad_()
        y = self.net(x)
        return y, self.torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    def predicted(self) -> tuple[Any, Any]:
        """See `Peer`."""
        y, dydx = self.twin(self.rows.x_test)
        return y.detach(), dydx.detach()


class Jax(Peer):
    """An explicit twin pass; one jitted scan an epoch, weights and moments donated."""

    def __init__(self, job: Job, threads: int) -> None:
        import jax
        from jax import numpy as jnp

        super().__init__(job)
        value, slopes = self.factors
        softplus = (jax.nn.softplus, lambda z, a: jax.nn.sigmoid(z))
        sigma, slope = {"softplus": softplus, "tanh": (jnp.tanh, lambda z, a: 1 - a * a)}[
            job.activation
        ]

        def twin(weights: Any, x: Any) -> tuple[Any, Any]:
            a, turned = x, []
            for w, b in weights[:-1]:
                z = a @ w + b
                a = sigma(z)
                turned.append(slope(z, a))
            w, b = weights[-1]
            g = w.T
            for (before, _), s in zip(weights[-2::-1], turned[::-1], strict=True):
                g = (g * s) @ before.T
            return a @ w + b, g

        def loss(weights: Any, x: Any, y: Any, dydx: Any) -> Any:
            y_hat, dydx_hat = twin(weights, x)
            errors = (slopes * (dydx_hat - dydx) ** 2).sum() / len(x)
            return value * ((y_hat - y) ** 2).mean() + errors

        def step(state: Any, batch: Any) -> tuple[Any, None]:
            weights, first, second, count = state
            rate, *rows = batch
            gradient = jax.grad(loss)(weights, *rows)
            tree, count = jax.tree.map, count + 1
            first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
            second = tree(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
            size, root = rate / (1 - 0.9**count), 1 / jnp.sqrt(1 - 0.999**count)
            weights = tree(
                lambda w, m, v: w - size * m / (jnp.sqrt(v) * root + 1e-8), weights, first, second
            )
            return (weights, first, second, count), None

        def epoch(state: Any, data: Any, order: Any, rates: Any) -> Any:
            return jax.lax.scan(step, state, (rates, *(part[order] for part in data)))[0]

        self.block, self.run = jax.block_until_ready, jax.jit(epoch, donate_argnums=0)
        self.twin = jax.jit(twin)
        self.data = [jnp.asarray(part) for part in (self.rows.x, self.rows.y, self.rows.dydx)]
        weights = jax.tree.map(jnp.asarray, self.weights)
        zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
        self.state = (weights, *zeros, jnp.zeros((), jnp.float32))

    def epoch(self) -> int:
        """See `Contestant`."""
        order, rates = self.next_epoch()
        self.state = self.block(self.run(self.state, self.data, order, rates))
        return len(rates)

    def predicted(self) -> tuple[Any, Any]:
        """See `Peer`."""
        return self.twin(self.state[0], self.rows.x_test)


class TensorFlow(Peer):
    """The reference notebooks' way: a static graph, numpy rows fed at every step."""

    def __init__(self, job: Job, threads: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow

        super().__init__(job)
        tf = tensorflow.compat.v1
        tf.disable_eager_execution()
        tf.logging.set_verbosity(tf.logging.ERROR)
        value, slopes = self.factors
        d = self.rows.x.shape[1]
        self.rate = tf.placeholder(tf.float32, [])
        self.inputs = [tf.placeholder(tf.float32, [None, width]) for width in (d, 1, d)]
        x, y, dydx = self.inputs
        pairs = [(tf.Variable(w), tf.Variable(b)) for w, b in self.weights]
        a, turned = x, []
        for w, b in pairs[:-1]:
            z = a @ w + b
            a = tf.nn.softplus(z) if job.activation == "softplus" else tf.nn.tanh(z)
            turned.append(tf.nn.sigmoid(z) if job.activation == "softplus" else 1 - a * a)
        w, b = pairs[-1]
        g = tf.transpose(w)
        for (before, _), s in zip(pairs[-2::-1], turned[::-1], strict=True):
            g = (g * s) @ tf.transpose(before)
        self.outputs = (a @ w + b, g)
        rows = tf.cast(tf.shape(x)[0], tf.float32)
        loss = value * tf.reduce_mean((self.outputs[0] - y) ** 2)
        loss += tf.reduce_sum(slopes * (self.outputs[1] - dydx) ** 2) / rows
        self.minimise = tf.train.AdamOptimizer(self.rate).minimize(loss)
        self.session = tf.Session(
            config=tf.ConfigProto(
                intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
            )
        )
        self.session.run(tf.global_variables_initializer())

    def epoch(self) -> int:
        """See `Contestant`."""
        order, rates = self.next_epoch()
        parts = (self.rows.x, self.rows.y, self.rows.dydx)
        for rows, rate in zip(order, rates, strict=True):
            batch = dict(zip(self.inputs, (part[rows] for part in parts), strict=True))
            self.session.run(self.minimise, {**batch, self.rate: rate})
        return len(rates)

    def predicted(self) -> tuple[Any, Any]:
        """See `Peer`."""
        return self.session.run(self.outputs, {self.inputs[0]: self.rows.x_test})


class Jenn(Peer):
    """jenn's own fit by mini-batches; it has one rate, one activation (tanh) and no threads."""

    def __init__(self, job: Job, threads: int) -> None:
        from jenn import NeuralNet

        super().__init__(job)
        self.net = NeuralNet([self.rows.x.shape[1], *job.hidden, 1])

    def fit(self, epochs: int, *, again: bool) -> None:
        """Train; from the present weights where `again`."""
        rows = self.rows
        self.net.fit(
            rows.x.T, rows.y.T, rows.dydx.T[None], alpha=self.job.peak, epochs=epochs,
            batch_size=self.job.batch, max_iter=1, random_state=0, is_warmstart=again,
        )  # fmt: skip

    def epoch(self) -> int:
        """See `Contestant`."""
        self.done += 1
        self.fit(1, again=self.done > 1)
        return self.steps

    def predict(self) -> Predictions:
        """See `Contestant`."""
        self.fit(self.job.epochs, again=False)
        y, dydx = self.net(self.rows.x_test.T)
        return self.rows.unscaled(y.T, dydx[0].T)


CONTESTANTS: dict[str, Callable[[Job, int], Contestant]] = {
    "pullback": Pullback,
    "JAX scan": Jax,
    "TensorFlow": TensorFlow,
    "jenn": Jenn,
    "torch, double backward": Torch,
}
# What each imports: tells a missing package from a broken one.
PACKAGES = {"JAX scan": "jax", "TensorFlow": "tensorflow", "jenn": "jenn"}


def timed_epoch(contestant: Contestant) -> dict[str, float]:
    """Wall and process CPU milliseconds a step."""
    wall, cpu = time.perf_counter(), time.process_time()
    steps = contestant.epoch()
    return {
        "wall": 1e3 * (time.perf_counter() - wall) / steps,
        "cpu": 1e3 * (time.process_time() - cpu) / steps,
    }


def main() -> None:
    """Answer on standard output, one line of JSON a line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        # Pools of every package are as large as the cores they see.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    job = Job(**json.loads(sys.stdin.readline()))
    contestant = CONTESTANTS[arguments.name](job, arguments.threads)
    for line in sys.stdin:
        if line.strip() == "epoch":
            answer: object = timed_epoch(contestant)
        else:
            y, dydx = contestant.predict()
            np.savez(line.strip(), y=y, dydx=dydx)
            answer = line.strip()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
