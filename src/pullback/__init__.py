"""pullback: derivatives with respect to inputs, in PyTorch.

`doctor` and `pathwise` are packages that can be called: `with pb.doctor() as findings`.
"""

from typing import TYPE_CHECKING

from pullback import doctor, errors, pathwise
from pullback._lazy import lazy
from pullback.derivatives import (
    check_independent_rows,
    gradient_by_differences,
    random_cotangents,
    value_and_directional,
    value_and_gradient,
    value_and_jacobian,
    value_and_pullback,
    value_gradient_and_hvp,
)
from pullback.doctor import check_twin
from pullback.inference import Inference, infer
from pullback.learning import MLP, Columns, DifferentialData, DifferentialLoss, Scaling, Twin

if TYPE_CHECKING:
    from pullback.learning import (
        DifferentialPCA,
        DifferentialPolynomialRegression,
        DifferentialRegressor,
        check_labels,
    )

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Columns",
    "DifferentialData",
    "DifferentialLoss",
    "DifferentialPCA",
    "DifferentialPolynomialRegression",
    "DifferentialRegressor",
    "Inference",
    "Scaling",
    "Twin",
    "check_independent_rows",
    "check_labels",
    "check_twin",
    "doctor",
    "errors",
    "gradient_by_differences",
    "infer",
    "pathwise",
    "random_cotangents",
    "value_and_directional",
    "value_and_gradient",
    "value_and_jacobian",
    "value_and_pullback",
    "value_gradient_and_hvp",
]

__getattr__ = lazy(
    __name__,
    dict.fromkeys(
        (
            "DifferentialPCA",
            "DifferentialPolynomialRegression",
            "DifferentialRegressor",
            "check_labels",
        ),
        "pullback.learning",
    ),
)
