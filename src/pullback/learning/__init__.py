"""Learn from values and derivatives: loss, networks, training, estimators."""

from typing import TYPE_CHECKING

from pullback._lazy import lazy
from pullback.learning.columns import Columns
from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.networks import MLP, Twin
from pullback.learning.scaling import Scaling

if TYPE_CHECKING:
    from pullback.learning.label_check import check_labels
    from pullback.learning.pca import DifferentialPCA
    from pullback.learning.polynomial import DifferentialPolynomialRegression
    from pullback.learning.regressor import DifferentialRegressor

__all__ = [
    "MLP",
    "Columns",
    "DifferentialData",
    "DifferentialLoss",
    "DifferentialPCA",
    "DifferentialPolynomialRegression",
    "DifferentialRegressor",
    "Scaling",
    "Twin",
    "check_labels",
]

# These import scikit-learn.
__getattr__ = lazy(
    __name__,
    {
        "DifferentialPCA": "pullback.learning.pca",
        "DifferentialPolynomialRegression": "pullback.learning.polynomial",
        "DifferentialRegressor": "pullback.learning.regressor",
        "check_labels": "pullback.learning.label_check",
    },
)
