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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from pullback._state import devices_of, kept_rng
from pullback.derivatives._checks import real_dtype
from pullback.derivatives._connect import autograd_on, connect
from pullback.derivatives._inputs import Inputs, Tensors, parse_inputs
from pullback.derivatives._layers import (
    kept_buffers_of_called,
    name_of_layer,
    outputs_of_layers,
)
from pullback.errors import CoupledRowsError

FEW = 4
Batch = list[Tensor]


def check_independent_rows(f: Callable[..., Any], x: Tensors) -> None:
    """Raise if row i of f(x) depends on row j of x, as far as four rows of x can show.

    f is run three times on four rows (on all rows, if it cannot do with four), under one random
    stream; the stream and the buffers of modules are given back. With one row there is nothing
    to couple, and what f would do to more rows is unknowable. A function that gives different
    outputs for the same input and random stream cannot be judged either, and passes.

    It costs about 0.3 ms for a small MLP. In a training loop one check is enough: call this before
    it, and pass check_rows=False inside.

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
    if inputs.rows < 2:
        return
    probe = _Probe(f, inputs)
    with autograd_on(), kept_buffers_of_called(f):
        few = torch.arange(FEW) * (inputs.rows - 1) // (FEW - 1)
        if inputs.rows <= FEW or not probe.judged_by(few):
            probe.judge(torch.arange(inputs.rows))


@dataclass(frozen=True, eq=False)
class _Probe:
    f: Callable[..., Any]
    inputs: Inputs

    def judged_by(self, rows: Tensor) -> bool:
        """Judge by these rows, unless f cannot do with them: it may close over all N."""
        try:
            y = self.run(self.take(rows))
        except Exception:
            return False
        self.judge(rows, y)
        return True

    def judge(self, rows: Tensor, y: Tensor | None = None) -> None:
        """Raise if a watched row changes with the others; y is f's output for `rows`, if known."""
        batch = self.take(rows)
        y = self.run(batch) if y is None else y
        for watched in (0, len(rows) - 1):
            altered = self.others_replaced(batch, rows, watched)
            change = self.change(y, self.run(altered), watched)
            # Once more as it was: a function with noise of its own changes then, too.
            if change > 0 and self.change(y, self.run(batch), watched) == 0:
                layer = self.first_coupled_layer(batch, altered, watched)
                raise CoupledRowsError(_message(self.inputs.api, change, layer))

    def take(self, rows: Tensor) -> Batch:
        return [v.detach().index_select(0, rows.to(v.device)) for v in self.inputs.values]

    def run(self, batch: Batch) -> Tensor:
        with kept_rng(*devices_of(*batch)):
            # Connected as in the call itself: f may ask for the gradient of a part of its own.
            return connect(
                self.f, replace(self.inputs, values=tuple(batch)), recording=False
            ).y.detach()

    def others_replaced(self, batch: Batch, rows: Tensor, watched: int) -> Batch:
        """The batch with all rows equal to the watched one."""
        altered = self.take(rows[watched].expand_as(rows))
        if not all(torch.equal(a, b) for a, b in zip(altered, batch, strict=True)):
            return altered
        # All rows were equal already, so the others are moved a little instead.
        moved = [v * 1.125 + 0.125 if v.is_floating_point() else v for v in altered]
        for new, old in zip(moved, altered, strict=True):
            new[watched] = old[watched]
        return moved

    def change(self, before: Tensor, after: Tensor, watched: int) -> float:
        """By how much a row changed; 0 if by rounding. See NOTE [Rounding or coupling]."""
        if torch.equal(before[watched], after[watched]):
            return 0.0
        eps = torch.finfo(real_dtype(before, *self.inputs.active)).eps
        before, after = before.cpu().double(), after.cpu().double()
        a, b = before[watched], after[watched]
        size = torch.cat([before, after]).abs().nan_to_num(0.0, 0.0, 0.0).amax(0)
        # Equal infinities differ by NaN, and two NaN do not compare equal: neither is a change.
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= eps**0.5 * size)
        return 0.0 if same.all() else (a - b).abs()[~same].nan_to_num(inf).max().item()

    def first_coupled_layer(self, batch: Batch, altered: Batch, watched: int) -> str | None:
        """The first module to finish with a changed row: inner modules finish before outer ones."""
        before, after = (
            outputs_of_layers(partial(self.run, rows), len(rows[0])) for rows in (batch, altered)
        )
        for (layer, y), (same_layer, z) in zip(before, after, strict=False):
            if layer is not same_layer or y.shape != z.shape:
                return None
            if self.change(y, z, watched) > 0:
                return name_of_layer(self.f, layer)
        return None


def _message(api: str, change: float, layer: str | None) -> str:
    where = f"; rows first meet in {layer}" if layer else ""
    return (
        f"{api}: a row of f(x) changes by {change:.3g} when only the other rows of x do{where}. "
        "A derivative for each row needs independent rows: put BatchNorm in eval mode "
        "(model.eval()) or use LayerNorm, and sum or normalise over rows outside f. "
        "check_rows=False skips this check; the results are then those of the sum over all rows."
    )
