"""Look at all outputs first, then ask chosen images what made them uncertain.

A small network learns half of the 8×8 digits that scikit-learn ships. It is run over all once. The
logic that follows sees every output, and picks, class by class, the images that the network was
least certain of: those with the smallest lead of the first class over the second. Each pick is
back-propagated on its own: the gradient of the lead with respect to the pixels says where a little
ink would decide for the first class (red) or for the second (blue).

    pip install 'pullback[plot]'
    python examples/images_then_batches.py [--picture uncertain.png] [--epochs 8]

Beside it, the three ways people do this today, timed on the same picks.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pullback.inference import infer

CLASSES = 10


class Picked(NamedTuple):
    """The least certain images of one class, and what they are uncertain between."""

    label: int
    rows: Tensor
    lead: Tensor
    gradient: Tensor


def digits(rows: int | None = None) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 8, 8] between 0 and 1, and their labels [N]."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:rows, None] / 16
    return images, torch.tensor(data.target)[:rows]


def train(images: Tensor, labels: Tensor, epochs: int, seed: int = 0) -> nn.Module:
    """A small convolutional network, in eval mode."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.BatchNorm2d(64),
        nn.SiLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 16, CLASSES),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
    return net.eval()


def lead(outputs: Tensor) -> Tensor:
    """How far the first class is ahead of the second [R]."""
    first, second = outputs.topk(2, dim=1).values.unbind(1)
    return first - second


def least_certain(outputs: Tensor, each: int) -> Iterator[tuple[int, Tensor]]:
    """The outside logic: it needs all outputs before it can pick, class by class."""
    leads, predicted = lead(outputs.detach()), outputs.argmax(1)
    for label in range(CLASSES):
        candidates = (predicted == label).nonzero().flatten()
        yield label, candidates[leads[candidates].argsort()[:each]]


def pick(net: nn.Module, images: Tensor, each: int = 32) -> list[Picked]:
    """Infer once, pick over time, pull back in batches."""
    run = infer(net, images, batch_size=64)
    waiting = [(label, run.pick(rows, lead)) for label, rows in least_certain(run.outputs, each)]
    return [Picked(label, chosen.rows, chosen.loss, chosen.gradients) for label, chosen in waiting]


def by_retained_graph(net: nn.Module, images: Tensor, each: int = 32) -> list[Tensor]:
    """One graph of everything, walked again for each pick."""
    x = images.clone().requires_grad_()
    outputs = net(x)
    return [
        torch.autograd.grad(lead(outputs[rows]).sum(), x, retain_graph=True)[0][rows]
        for _, rows in least_certain(outputs, each)
    ]


def by_summed_losses(net: nn.Module, images: Tensor, each: int = 32) -> list[Tensor]:
    """One graph of everything, one backward: every pick has to be known before."""
    x = images.clone().requires_grad_()
    outputs = net(x)
    picks = list(least_certain(outputs, each))
    total = torch.stack([lead(outputs[rows]).sum() for _, rows in picks]).sum()
    (gradient,) = torch.autograd.grad(total, x)
    return [gradient[rows] for _, rows in picks]


def by_running_again(net: nn.Module, images: Tensor, each: int = 32) -> list[Tensor]:
    """Inference, then each pick run once more with a graph; nothing checks that it is the same."""
    with torch.no_grad():
        outputs = torch.cat([net(part) for part in images.split(64)])
    found = []
    for _, rows in least_certain(outputs, each):
        x = images[rows].requires_grad_()
        found.append(torch.autograd.grad(lead(net(x)).sum(), x)[0])
    return found


WAYS: dict[str, Callable[..., list[Any]]] = {
    "infer once, pull back later": pick,
    "retain_graph=True, a backward a pick": by_retained_graph,
    "sum of all losses, one backward": by_summed_losses,
    "run the picks again by hand": by_running_again,
}


def timed(net: nn.Module, images: Tensor, repeats: int = 3) -> dict[str, float]:
    """CPU seconds of each way, the best of several; the gradients are compared first."""
    want = [chosen.gradient for chosen in pick(net, images)]
    seconds = {}
    for name, way in WAYS.items():
        found = [part.gradient if isinstance(part, Picked) else part for part in way(net, images)]
        for one, other in zip(found, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        runs = []
        for _ in range(repeats):
            start = time.process_time()
            way(net, images)
            runs.append(time.process_time() - start)
        seconds[name] = min(runs)
    return seconds


def draw(images: Tensor, outputs: Tensor, picked: list[Picked], path: Path) -> None:
    """The least certain image of each class, above what its lead hangs on."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.2), layout="constrained")
    axes = figure.subplots(2, len(picked))
    # Each image on its own scale: an uncertain image is where gradients differ in size.
    for column, chosen in zip(axes.T, picked, strict=True):
        row = int(chosen.rows[0])
        first, second = outputs[row].topk(2).indices.tolist()
        ink, gradient = images[row, 0].numpy(), chosen.gradient[0, 0].numpy()
        size = float(abs(gradient).max())
        column[0].imshow(ink, cmap="gray_r", vmin=0, vmax=1)
        column[0].set_title(f"{first} or {second}?\nlead {float(chosen.lead[0]):.2f}")
        column[1].imshow(ink, cmap="gray_r", vmin=0, vmax=2.5)
        shown = column[1].imshow(gradient, cmap="bwr", vmin=-size, vmax=size, alpha=0.75)
        column[1].set_xlabel(f"±{size:.1f} a unit of ink", fontsize=8)
        for axis in column:
            axis.set_xticks([])
            axis.set_yticks([])
    bar = figure.colorbar(shown, ax=axes[1, -1], ticks=[-size, size])
    bar.ax.set_yticklabels(["second", "first"])
    axes[1, 0].set_ylabel("∂lead / ∂pixel")
    figure.suptitle("The least certain image of each class, and where ink would decide it")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, default=Path("uncertain.png"))
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    images, labels = digits()
    seen = len(images) // 2
    net = train(images[:seen], labels[:seen], options.epochs)
    outputs = infer(net, images).outputs.detach()
    accuracy = float((outputs.argmax(1) == labels)[seen:].float().mean())
    picked = [chosen for chosen in pick(net, images) if len(chosen.rows)]
    draw(images, outputs, picked, options.picture)
    table = Table("way", "CPU seconds")
    for name, seconds in timed(net, images).items():
        table.add_row(name, f"{seconds:.3f}")
    console = Console()
    console.print(f"{len(images)} images, half of them new to the network: {accuracy:.1%} of those")
    console.print(f"as labelled; {options.picture} written", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
