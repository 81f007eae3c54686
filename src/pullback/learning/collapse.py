"""Notice a training run that ended as a constant, or worse off than one.

With a high learning rate the hidden units saturate together and the network stays at the mean of
its labels for good: 1 run in 4 of the reference implementation in 50 dimensions. It raises nothing.
"""

import torch
from torch import Tensor

from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import Twin

# Predictions that vary by less than this share of the labels' spread are a constant.
_CONSTANT = 0.02
_ROWS = 4_096


@torch.no_grad()
def is_collapsed(twin: Twin, data: DifferentialData) -> bool:
    """Whether an output is constant although even a straight line and a parabola see a signal.

    Args:
        twin: the trained network.
        data: standardised training rows.
    """
    some = data.take(slice(0, _ROWS))
    y = twin.module(some.x)
    constant = y.std(0, correction=0) < _CONSTANT
    return any(bool(flat) and _has_signal(some.x, some.y[:, k]) for k, flat in enumerate(constant))


def is_diverged(loss: DifferentialLoss, data: DifferentialData, reached: float) -> bool:
    """Whether a loss is more than twice that of predicting zero: the mean of all labels.

    Args:
        loss: what was minimised.
        data: standardised training rows.
        reached: where training ended.
    """
    zeros = {
        f"{name}_hat": torch.zeros_like(label)
        for name in ("dydx", "dydv", "hvp")
        if (label := getattr(data, name)) is not None
    }
    nothing = loss(
        torch.zeros_like(data.y), data.y, dydx=data.dydx, dydv=data.dydv, hvp=data.hvp,
        sample_weight=data.sample_weight, dydx_weight=data.dydx_weight, **zeros,
    )  # fmt: skip
    # At least one, which is that of the mean where labels weigh alike: constant labels have none.
    return reached > 2.0 * max(float(nothing), 1.0)


def _has_signal(x: Tensor, y: Tensor) -> bool:
    """Whether x and x² explain more of y than chance would: an F-test in its large-sample form.

    The share of variance explained, times N, is about chi-squared with 2D degrees of freedom if
    there is nothing to explain.
    """
    known = ~y.isnan()
    x, y = x[known].double(), y[known].double()
    if len(y) < 10 or float(y.std(correction=0)) < 0.1:
        return False
    features = torch.cat([x, x.square()], 1)
    features, centred = features - features.mean(0), y - y.mean()
    fitted = features @ torch.linalg.lstsq(features, centred, driver="gelsd").solution
    freedom = features.shape[1]
    explained = float(fitted.square().sum() / centred.square().sum())
    # Five standard deviations of the chi-squared; and more than a constant would show.
    chance = (freedom + 5.0 * (2.0 * freedom) ** 0.5) / len(y)
    return explained > max(chance, 4.0 * _CONSTANT**2)
