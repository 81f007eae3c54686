"""Labels with derivatives: a payoff as a plain torch function, differentiated path by path."""

import sys
from types import ModuleType
from typing import Any

from pullback.pathwise.bumps import label_by_bumps
from pullback.pathwise.check import PathwiseReport, check_pathwise
from pullback.pathwise.distributions import Distribution, LogNormal, Normal, NormalVector, Uniform
from pullback.pathwise.labels import Labels, pathwise
from pullback.pathwise.likelihood import (
    likelihood_ratio,
    lognormal_log_density,
    normal_log_density,
    normal_vector_log_density,
)
from pullback.pathwise.remedies import safe_sqrt, soft_step, value_hard_derivative_soft

__all__ = [
    "Distribution",
    "Labels",
    "LogNormal",
    "Normal",
    "NormalVector",
    "PathwiseReport",
    "Uniform",
    "check_pathwise",
    "label_by_bumps",
    "likelihood_ratio",
    "lognormal_log_density",
    "normal_log_density",
    "normal_vector_log_density",
    "pathwise",
    "safe_sqrt",
    "soft_step",
    "value_hard_derivative_soft",
]


class _Callable(ModuleType):
    """This package: `pullback.pathwise(payoff, state, noise)` is the function of the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Labels:
        return pathwise(*args, **kwargs)


# A package and a function cannot share one name in any other way, and both are wanted at the door.
sys.modules[__name__].__class__ = _Callable
