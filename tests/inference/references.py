"""The slow obvious answers: one row, or one big graph; and the check against them."""

import torch
from torch import Tensor, nn


def by_one_graph(net, x, loss_of):
    """The loss of all outputs through one graph: gradients of inputs and weights."""
    x = x.detach().clone().requires_grad_()
    weights = [p for p in net.parameters() if p.requires_grad] if isinstance(net, nn.Module) else []
    found = torch.autograd.grad(loss_of(net(x)), [x, *weights], allow_unused=True)
    return found[0], list(found[1:])


def by_loop(net, x, row_loss):
    """One row, one autograd.grad, stack: ∂row_loss(net(x_i), i)/∂x_i."""
    found = []
    for i, row in enumerate(x):
        leaf = row.detach().clone()[None].requires_grad_()
        found.append(torch.autograd.grad(row_loss(net(leaf)[0], i), leaf)[0][0])
    return torch.stack(found)


def assert_rows_close(found: Tensor, want: Tensor, rtol: float) -> None:
    """Each row agrees with the norm of its difference below rtol times its own norm."""
    assert found.shape == want.shape, f"shape {list(found.shape)}, expected {list(want.shape)}"
    assert found.dtype == want.dtype, f"dtype {found.dtype}, expected {want.dtype}"
    off = (found - want).reshape(len(want), -1).norm(dim=1)
    size = want.reshape(len(want), -1).norm(dim=1)
    worst = (off / size.clamp(min=torch.finfo(want.dtype).tiny)).max() if len(want) else 0.0
    assert worst <= rtol, f"rows differ by {float(worst):.1e} of their norm, allowed {rtol:.1e}"
    assert len(want) == 0 or size.max() > 0, "all gradients are zero: nothing was compared"
