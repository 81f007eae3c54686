"""Recomputed outputs are compared with the recorded ones, within what rounding explains.

NOTE [how far apart may two runs of the same rows be]
A kernel may sum a row's terms in another order when the batch has another size. Two orders of a
sum of n terms differ by about √n·u, with u the unit roundoff (Higham 2002, section 4.2, and
Higham & Mary 2019 for the √n of the statistical bound); through L layers whose errors are
independent, by √L times that. A format coarser than float32 (bfloat16, float16, TF32) accumulates
in float32, but each layer's result is rounded to the format, and a rounding boundary may be
crossed: u_store a layer. So

    allowed = 8 · √L · (u_store + √n · u),     times the size of the row's outputs,

with n the largest fan-in and L the number of weight matrices (at least 256 and 4, for what cannot
be seen from outside), u_store = 0 for float32 and float64. The factor 8 is measured: on
convolutional, residual, attention and perceptron networks the largest difference stayed an order
of magnitude below it, and the faults that matter (other weights, masks, modes, statistics) lie
orders above. The size of a row's outputs is its largest magnitude, or, if larger, the median of
that over all rows: a row whose outputs cancel is not held to its own last digits, and one huge
row does not hide the others.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pullback.inference.rows import flat
from pullback.inference.setting import Setting
from pullback.inference.weights import lowest_precision


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference, relative to the size of a row's outputs, and where it comes from."""

    allowed: float
    source: str


def derived_tolerance(
    module: nn.Module | None, outputs: list[torch.dtype], setting: Setting
) -> Tolerance:
    """See NOTE [how far apart may two runs of the same rows be]."""
    matrices = [p for p in module.parameters() if p.dim() > 1] if module is not None else []
    layers = max([4, len(matrices)])
    fan_in = max([256, *(p.numel() // max(p.shape[0], 1) for p in matrices)])
    others = [setting.autocast] if setting.autocast is not None else []
    coarsest = lowest_precision(module, *outputs, *others)
    accumulate = torch.float64 if coarsest == torch.float64 else torch.float32
    unit = torch.finfo(accumulate).eps / 2
    stored = torch.finfo(coarsest).eps / 2 if coarsest != accumulate else 0.0
    if setting.device.type == "cuda" and accumulate == torch.float32 and _tf32():
        stored = max(stored, 2.0**-11)
    allowed = 8 * math.sqrt(layers) * (stored + math.sqrt(fan_in) * unit)
    kept = f"{stored:.1e}" if stored else "0"
    return Tolerance(
        allowed, f"8·√L·(u_store + √n·u) with L={layers}, u_store={kept}, n={fan_in}, u={unit:.1e}"
    )


def _tf32() -> bool:
    return torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32


def magnitudes(values: Tensor) -> Tensor:
    """The largest finite magnitude [R] in each row of values [R, ...]."""
    columns = flat(_real(values))
    if not columns.shape[1]:
        return torch.zeros(len(columns), dtype=torch.float64)
    # NaN and infinity are compared apart, and must not drown the finite outputs beside them.
    return columns.nan_to_num(0.0, 0.0, 0.0).abs().amax(1).cpu().double()


def row_sizes(largest: Tensor) -> Tensor:
    """The size [N] that each row's outputs are compared at, from their magnitudes [N]."""
    known = largest[largest > 0]
    return largest.clamp(min=float(known.median())) if len(known) else largest


def differences(recomputed: Tensor, recorded: Tensor, sizes: Tensor) -> Tensor:
    """How far each row [R] is off, relative to its size; infinite where NaN or infinity moved."""
    if recomputed.shape != recorded.shape or recomputed.dtype != recorded.dtype:
        return torch.full((len(recorded),), math.inf)
    new, old = flat(_real(recomputed)), flat(_real(recorded))
    if not old.shape[1]:
        return torch.zeros(len(old), dtype=torch.float64)
    if not old.is_floating_point():
        return torch.where((new != old).any(1).cpu(), math.inf, 0.0)
    same = (new == old) | (new.isnan() & old.isnan())
    # Equal infinities would give NaN below, and a moved one infinity, which is what is wanted.
    off = torch.where(same, 0.0, (new - old).abs().nan_to_num(math.inf, math.inf))
    largest = off.amax(1).cpu().double()
    return torch.where(largest == 0, largest, largest / sizes)


def _real(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values
