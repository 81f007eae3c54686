"""A twin network in a training loop of your own: `Twin` and `DifferentialLoss`, nothing else.

A loop over batches (x, y, dy) with a loss on values and one on derivatives is where hand-written
twin networks go wrong, in four ways that this version cannot:

* pre-activations kept in a list on the module: the second batch walks the first one's freed graph
  and raises "Trying to backward through the graph a second time". Twin keeps nothing between calls.
* `detach_()` on the way back, which silences that error and cuts the derivative loss off from the
  weights. DifferentialLoss refuses a prediction without a graph.
* the factor omega_0 of each layer, forgotten on the way back. MLP has it in both directions.
* the identity for the derivative of an activation. MLP compares the two at construction.

    python examples/seed_twin.py
"""

import argparse

import torch

import pullback as pb


def problem(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The function y = sin(2 x₁) exp(-x₂²) with its gradient: x [N, 2], y [N, 1], dydx [N, 2]."""
    x = 2 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed)) - 1
    wave, bump = torch.sin(2 * x[:, :1]), torch.exp(-x[:, 1:].square())
    slope = 2 * torch.cos(2 * x[:, :1])
    return x, wave * bump, torch.cat([slope * bump, -2 * x[:, 1:] * wave * bump], dim=1)


def train(rows: int = 256, epochs: int = 200, seed: int = 0) -> tuple[float, float]:
    """Root mean squared errors of values and derivatives on fresh rows."""
    x, y, dy = problem(rows, seed)
    torch.manual_seed(seed)
    twin = pb.Twin(pb.MLP(2, 1, hidden=(32, 32), activation="sin", omega_0=2.0))
    loss_function = pb.DifferentialLoss.from_data(x, y, dy)
    optimizer = torch.optim.Adam(twin.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(rows).split(64):
            y_pred, dy_pred = twin(x[batch])
            loss = loss_function(y_pred, y[batch], dy_pred, dy[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    x, y, dy = problem(1_000, seed + 1)
    with torch.no_grad():
        y_pred, dy_pred = twin(x)
    return float((y_pred - y).square().mean().sqrt()), float(
        (dy_pred[:, 0] - dy).square().mean().sqrt()
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=200)
    arguments = parser.parse_args()
    value, derivative = train(arguments.rows, arguments.epochs)
    print(f"root mean squared error on fresh rows: value {value:.4f}, derivatives {derivative:.4f}")
