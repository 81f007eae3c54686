"""Slow, obvious oracles: one row, one output, one autograd.grad; and a checker that raises."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Key = int | str | None


def one_row(x: Any, n: int) -> Any:
    """Row n of every input, as a batch of one."""
    if isinstance(x, tuple):
        return tuple(v[n : n + 1] for v in x)
    if isinstance(x, dict):
        return {key: v[n : n + 1] for key, v in x.items()}
    return x[n : n + 1]


def call(f: Callable[..., Tensor], x: Any) -> Tensor:
    """f(x), f(*x) or f(**x), on copies: f may work in place."""
    if isinstance(x, tuple):
        return f(*(v.clone() for v in x))
    return f(**{key: v.clone() for key, v in x.items()}) if isinstance(x, dict) else f(x.clone())


def chosen(x: Any, key: Key) -> Tensor:
    return x if key is None else x[key]


def with_chosen(x: Any, key: Key, value: Tensor) -> Any:
    """The inputs with one of them replaced."""
    if key is None:
        return value
    if isinstance(x, tuple):
        return tuple(value if i == key else v for i, v in enumerate(x))
    return {**x, key: value}


def jacobian_by_loop(f: Callable[..., Tensor], x: Any, key: Key = None) -> Tensor:
    """[N, *K, *D]: for each row alone, and each of its outputs, one autograd.grad."""
    jacobians = []
    for n in range(len(chosen(x, key))):
        leaf = chosen(one_row(x, n), key).detach().clone().requires_grad_()
        y = call(f, with_chosen(one_row(x, n), key, leaf))[0]
        rows = [torch.autograd.grad(k, leaf, retain_graph=True)[0][0] for k in y.reshape(-1)]
        jacobians.append(torch.stack(rows).reshape((*y.shape, *leaf.shape[1:])))
    return torch.stack(jacobians).detach()


def gradients_by_loop(f: Callable[..., Tensor], x: Any, key: Key = None) -> Tensor:
    """[N, *D] for f returning [N] or [N, 1]."""
    return jacobian_by_loop(f, x, key).reshape(chosen(x, key).shape)


def hessian_by_loop(f: Callable[..., Tensor], x: Tensor) -> Tensor:
    """[N, D, D], D the flattened row: for each row alone, each gradient entry differentiated."""
    hessians = []
    for n in range(len(x)):
        leaf = x[n : n + 1].detach().clone().requires_grad_()
        (g,) = torch.autograd.grad(call(f, leaf).sum(), leaf, create_graph=True)
        entries = g.reshape(-1)
        rows = [
            torch.autograd.grad(e, leaf, retain_graph=True, allow_unused=True)[0]
            if e.requires_grad
            else None
            for e in entries
        ]
        filled = [torch.zeros_like(leaf) if row is None else row for row in rows]
        hessians.append(torch.stack(filled).reshape(len(entries), -1))
    return torch.stack(hessians).detach()


def assert_close(actual: Tensor, expected: Tensor, *, tolerance: float | None = None) -> None:
    """Raise unless shape and dtype agree and no entry is off by more than rounding.

    The error is measured against the largest expected entry, since that is what rounding scales
    with: 512 eps of it allow a few hundred roundings, and are far below the 1e-3 of a wrong factor.
    """
    assert isinstance(actual, Tensor), f"not a tensor: {actual!r}"
    assert actual.shape == expected.shape, f"shape {actual.shape} instead of {expected.shape}"
    assert actual.dtype == expected.dtype, f"{actual.dtype} instead of {expected.dtype}"
    if expected.numel() == 0:
        return
    size = expected.detach().double().abs().max().item()
    error = (actual.detach().double() - expected.detach().double()).abs().max().item()
    allowed = (512 * torch.finfo(expected.dtype).eps if tolerance is None else tolerance) * size
    assert error <= allowed, f"off by {error:.3g}, allowed {allowed:.3g} (largest {size:.3g})"
