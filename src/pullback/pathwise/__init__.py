"""Labels with derivatives: a payoff as a plain torch function, differentiated path by path."""

from pullback._lazy import make_callable
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

make_callable(__name__, pathwise)
