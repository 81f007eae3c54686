"""How a contract's conditions are differentiated; the same choice for all markets that have any.

raw: as written. The derivative of a condition is zero, so labels are wrong; for study.
soft: value and derivative of the smoothed contract, unbiased for it.
soft-derivative: the contract's own value, the smoothed derivative.
likelihood-ratio: the contract's own value and derivative, both unbiased; noisier.
"""

from typing import Literal, get_args

from torch import Tensor

from pullback.errors import InputError
from pullback.pathwise.remedies import soft_step, value_hard_derivative_soft

Differentiation = Literal["raw", "soft", "soft-derivative", "likelihood-ratio"]


def condition(u: Tensor, width: float, how: Differentiation) -> Tensor:
    """1{u > 0}, or what stands for it."""
    hard = (u > 0).to(u.dtype)
    if how in ("raw", "likelihood-ratio"):
        return hard
    soft = soft_step(u, width)
    return soft if how == "soft" else value_hard_derivative_soft(hard, soft)


def check_differentiation(api: str, how: str, *, without: tuple[str, ...] = ()) -> None:
    """Only the four above, or those of them that a market has."""
    known = [kind for kind in get_args(Differentiation) if kind not in without]
    if how not in known:
        raise InputError(f"{api}: expected labels to be one of {', '.join(known)}, got {how!r}")
