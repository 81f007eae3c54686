"""Central differences: slow, approximate and independent of autograd, so a witness to it.

NOTE [The step]
A central difference errs by h²/6 |f'''| from truncation and by about eps |f| / h from rounding.
The sum is least near h = (3 eps |f| / |f'''|)^(1/3); with f, and its third derivative, of the size
that x gives them, h = eps^(1/3) max(1, |x|): 6e-6 in float64, and an error near eps^(2/3) = 4e-11
relative to that scale. eps is that of f's *output*: a function that works in float32 inside needs
the wider step 5e-3.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.derivatives._checks import check_input, check_output
from pullback.errors import GradientError, InputError

Array = Any  # a Tensor or a numpy array: the same kind comes back


def gradient_by_differences(
    f: Callable[[Any], Any], x: Array, *, step: float | None = None
) -> Array:
    """Return the derivative of each row's outputs by central differences in float64.

    dydx[n, k, d] = (y[n, k](x + h e_d) - y[n, k](x - h e_d)) / 2h, with 2·D runs of f, each on all
    rows at once. f is a black box, given what x is: a float64 tensor, or a float64 numpy array.
    Rows are taken to be independent; `check_independent_rows` can tell for torch functions.

    Args:
        f: a function with independent rows, [N, *D] -> [N, *K]; a module must be in float64
            (`module.double()`).
        x: a tensor or a numpy array [N, *D].
        step: h, absolute and the same for all inputs; None chooses h = eps^(1/3) max(1, |x|), see
            NOTE [The step].

    Returns:
        dydx [N, *K, *D], float64; [N, *D] if f returns [N].

    Raises:
        InputError: x is neither tensor nor array, or the step is not positive.
        ShapeError: f does not return one row a sample.
        GradientError: f cannot be run in float64.

    >>> import numpy as np
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> gradient_by_differences(lambda x: (x**2).sum(axis=1), x).round(6)
    array([[2., 4.],
           [6., 8.]])
    """
    api = "gradient_by_differences"
    if step is not None and not step > 0:
        raise InputError(f"{api}: expected a positive step, got {step}.")
    tensor = isinstance(x, Tensor)
    points = check_input(api, "x", x if tensor else torch.from_numpy(np.array(x)))
    points = points.detach().double()

    def run(values: Tensor) -> Tensor:
        # Each run gets its own copy: f may work in place.
        given = values.clone() if tensor else values.numpy().copy()
        return check_output(api, _as_tensor(_call(api, f, given)), len(values)).detach()

    y = run(points)
    flat = points.reshape(len(points), prod(points.shape[1:]))
    steps = _steps(flat, y, step)
    columns = [_difference(run, points, flat, steps, d) for d in range(flat.shape[1])]
    stacked = torch.stack(columns, -1) if columns else y.new_zeros(*y.shape, 0).double()
    dydx = stacked.reshape(*y.shape, *points.shape[1:])
    return dydx if tensor else dydx.numpy()


def _steps(flat: Tensor, y: Tensor, step: float | None) -> Tensor:
    """H for each row and input, [N, D]. See NOTE [The step]."""
    if step is not None:
        return torch.full_like(flat, step)
    return torch.finfo(y.dtype).eps ** (1 / 3) * flat.abs().clamp(min=1.0)


def _difference(
    run: Callable[[Tensor], Tensor], points: Tensor, flat: Tensor, steps: Tensor, d: int
) -> Tensor:
    up, down = flat.clone(), flat.clone()
    up[:, d] += steps[:, d]
    down[:, d] -= steps[:, d]
    # x ± h is rounded; dividing by what was really moved leaves only f's own rounding.
    moved = up[:, d] - down[:, d]
    change = run(up.reshape(points.shape)).double() - run(down.reshape(points.shape)).double()
    return change / moved.reshape(-1, *[1] * (change.dim() - 1))


def _call(api: str, f: Callable[[Any], Any], values: Array) -> Any:
    try:
        return f(values)
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        raise GradientError(
            f"{api}: f could not be run in float64 ({error}). Differences in float32 are mostly "
            "rounding: pass a copy in float64 (copy.deepcopy(module).double())."
        ) from error


def _as_tensor(y: Any) -> Any:
    return torch.from_numpy(np.asarray(y)) if isinstance(y, np.ndarray | float | int) else y
