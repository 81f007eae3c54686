"""Whether the rows of f are independent: replace all rows but one, and watch that one.

Every derivative here is pulled back for all rows at once, from the sum of the outputs. That gives
∂y_n/∂x_n only if y_n depends on x_n alone; BatchNorm in train mode, or a sum over the batch,
breaks it without any other sign.

NOTE [The probe]
f runs on four rows of x, then twice more with all four equal to the first, and to the last. The
replacements are rows of x, so they stay where f is defined. All other rows change at once, so a
coupling shows at full strength, however many rows there are; and with both ends watched a coupling
that runs in one direction (cumsum) is seen too. The three batches have the same size, since
kernels round differently from size to size, and the same random stream, so that dropout's masks
agree.

NOTE [Rounding or coupling]
With equal shapes nearly every kernel gives a watched row the same bits, and then nothing is left
to judge. Where it does not (memory alignment, atomics), the difference is some eps of the outputs'
size; a coupling is of that size itself. The line is drawn half way in digits, at sqrt(eps): a
thousand roundings that all fall on one side stay below it, and what it lets pass is an error of
the derivative below sqrt(eps).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from pullback._state import devices_of, kept_buffers, kept_rng
from pullback.derivatives._checks import real_dtype
from pullback.derivatives._connect import autograd_on, connect
from pullback.derivatives._inputs import Inputs, Tensors, parse_inputs
from pullback.errors import CoupledRowsError

FEW = 4
Run = Callable[[list[Tensor]], Tensor]


def check_independent_rows(f: Callable[..., Any], x: Tensors) -> None:
    """Raise if row i of f(x) depends on row j of x, as far as four rows of x can show.

    f is run three times on four rows (on all rows, if it cannot do with four), under one random
    stream; the stream and the buffers of modules are given back. With one row there is nothing
    to couple, and what f would do to more rows is unknowable. A function that gives different
    outputs for the same input and random stream cannot be judged either, and passes.

    Args:
        f: a module or a function.
        x: a tensor [N, *D], a tuple (f is called f(*x)) or a dict (called f(**x)).

    Raises:
        CoupledRowsError: a row changed with the others; the message names the first layer where
            rows meet, if it is a module's.

    >>> import torch
    >>> x = torch.randn(8, 3)
    >>> check_independent_rows(torch.nn.LayerNorm(3), x)
    >>> check_independent_rows(torch.nn.BatchNorm1d(3), x)
    Traceback (most recent call last):
    pullback.errors.CoupledRowsError: check_independent_rows: a row of f(x) changes by ...
    """
    probe_rows(f, parse_inputs("check_independent_rows", x, probing=True))


def probe_rows(f: Callable[..., Any], inputs: Inputs) -> None:
    """`check_independent_rows` in the name of another call. See NOTE [The probe]."""
    rows = inputs.rows
    if rows < 2:
        return
    run = partial(_run, f, inputs)
    with autograd_on(), _kept_buffers(f):
        if rows > FEW and _works(run, inputs, few := torch.linspace(0, rows - 1, FEW).long()):
            _judge(f, inputs, run, few)
        else:
            _judge(f, inputs, run, torch.arange(rows))


def _works(run: Run, inputs: Inputs, rows: Tensor) -> bool:
    """Whether f can do with these rows alone: it may have closed over tensors of all N."""
    try:
        run(_take(inputs, rows))
    except Exception:
        return False
    return True


def _run(f: Callable[..., Any], inputs: Inputs, values: list[Tensor]) -> Tensor:
    with kept_rng(*devices_of(*values)):
        # Connected as in the call itself: f may ask for the gradient of a part of its own.
        return connect(f, replace(inputs, values=tuple(values)), recording=False).y.detach()


def _judge(f: Callable[..., Any], inputs: Inputs, run: Run, rows: Tensor) -> None:
    batch = _take(inputs, rows)
    y = run(batch)
    for watched in (0, len(rows) - 1):
        altered = _others_replaced(inputs, batch, rows, watched)
        change = _change(y, run(altered), watched, inputs)
        if change > 0 and _change(y, run(batch), watched, inputs) == 0:
            layer = _first_coupled_layer(f, inputs, run, batch, altered, watched)
            raise CoupledRowsError(_message(inputs.api, change, layer))


def _take(inputs: Inputs, rows: Tensor) -> list[Tensor]:
    return [v.detach().index_select(0, rows.to(v.device)) for v in inputs.values]


def _others_replaced(
    inputs: Inputs, batch: list[Tensor], rows: Tensor, watched: int
) -> list[Tensor]:
    """The batch with all rows equal to the watched one."""
    altered = _take(inputs, rows[watched].expand_as(rows))
    if all(torch.equal(a, b) for a, b in zip(altered, batch, strict=True)):
        # All rows were equal already, so the others are moved a little instead.
        moved = [v * 1.125 + 0.125 if v.is_floating_point() else v for v in altered]
        for new, old in zip(moved, altered, strict=True):
            new[watched] = old[watched]
        return moved
    return altered


def _change(before: Tensor, after: Tensor, watched: int, inputs: Inputs) -> float:
    """By how much the watched row changed; 0 if by rounding. See NOTE [Rounding or coupling]."""
    a, b = before[watched].double(), after[watched].double()
    if torch.equal(a, b):
        return 0.0
    size = torch.cat([before, after]).double().abs().nan_to_num(0.0, 0.0, 0.0).amax(0)
    tolerance = torch.finfo(real_dtype(before, *inputs.active)).eps ** 0.5 * size
    # Equal infinities differ by NaN, and two NaN do not compare equal: neither is a change.
    same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= tolerance)
    return 0.0 if same.all() else (a - b).abs()[~same].nan_to_num(inf).max().item()


@contextmanager
def _kept_buffers(f: Callable[..., Any]) -> Iterator[None]:
    """Give buffers back, also those of modules that a plain function calls."""
    if isinstance(f, nn.Module):
        with kept_buffers(f):
            yield
        return
    seen: set[nn.Module] = set()
    with ExitStack() as stack:

        def keep(module: nn.Module, _: object) -> None:
            if module not in seen:
                seen.update(module.modules())
                stack.enter_context(kept_buffers(module))

        with register_module_forward_pre_hook(keep):
            yield


def _first_coupled_layer(
    f: Callable[..., Any],
    inputs: Inputs,
    run: Run,
    batch: list[Tensor],
    altered: list[Tensor],
    watched: int,
) -> str | None:
    """The first module to finish with a changed row: inner modules finish before outer ones."""
    before, after = _layer_outputs(run, batch), _layer_outputs(run, altered)
    for (layer, y), (same_layer, z) in zip(before, after, strict=False):
        if layer is not same_layer or y.shape != z.shape:
            return None
        if _change(y, z, watched, inputs) > 0:
            named = f.named_modules() if isinstance(f, nn.Module) else ()
            path = next((name for name, module in named if module is layer), "")
            return f"{type(layer).__name__} '{path}'" if path else type(layer).__name__
    return None


def _layer_outputs(run: Run, values: list[Tensor]) -> list[tuple[nn.Module, Tensor]]:
    outputs: list[tuple[nn.Module, Tensor]] = []

    def record(layer: nn.Module, _: object, y: object) -> None:
        if isinstance(y, Tensor) and y.dim() > 0 and len(y) == len(values[0]):
            outputs.append((layer, y.detach().clone()))

    with register_module_forward_hook(record):
        run(values)
    return outputs


def _message(api: str, change: float, layer: str | None) -> str:
    where = f"; rows first meet in {layer}" if layer else ""
    return (
        f"{api}: a row of f(x) changes by {change:.3g} when only the other rows of x do{where}. "
        "A derivative for each row needs independent rows: put BatchNorm in eval mode "
        "(model.eval()) or use LayerNorm, and sum or normalise over rows outside f. "
        "check_rows=False skips this check; the results are then those of the sum over all rows."
    )
