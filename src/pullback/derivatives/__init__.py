"""Derivatives of functions with independent rows: functions in, tensors out."""

from pullback.derivatives._rows import check_independent_rows
from pullback.derivatives.directional import value_and_directional
from pullback.derivatives.finite import gradient_by_differences
from pullback.derivatives.gradient import value_and_gradient
from pullback.derivatives.jacobian import value_and_jacobian
from pullback.derivatives.projections import random_cotangents, value_and_pullback
from pullback.derivatives.second import value_gradient_and_hvp

__all__ = [
    "check_independent_rows",
    "gradient_by_differences",
    "random_cotangents",
    "value_and_directional",
    "value_and_gradient",
    "value_and_jacobian",
    "value_and_pullback",
    "value_gradient_and_hvp",
]
