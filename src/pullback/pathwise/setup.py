"""From the arguments of a call to a simulation, each argument checked."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.errors import InputError, ShapeError
from pullback.pathwise.draws import Draws, Given, PseudoRandom, Sobol
from pullback.pathwise.simulation import Payoff, Simulation
from pullback.pathwise.states import States, parse_state

Noise = int | Sequence[int] | Tensor
_SAMPLERS: dict[str, type[Draws]] = {"pseudo": PseudoRandom, "sobol": Sobol}


def set_up(
    payoff: Payoff,
    state: Any,
    noise: Noise,
    *,
    rows: int | range | None,
    seed: int = 0,
    sampler: str = "pseudo",
    antithetic: bool = False,
    paths_per_state: int = 1,
    wrt: str | Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Simulation:
    """The simulation that `pathwise` describes.

    Raises:
        InputError: an option is out of range, or all rows share one draw of the noise.
        ShapeError: shapes do not belong together.
    """
    if sampler not in _SAMPLERS:
        raise InputError(f"pathwise: expected sampler='pseudo' or 'sobol', got {sampler!r}")
    check_count("paths_per_state", paths_per_state, 1)
    check_count("seed", seed, 0)
    states = parse_state(state, wrt)
    draws = _draws(noise, states, seed, sampler, paths_per_state)
    kind = _kind(states, dtype, device)
    return Simulation(payoff, states, draws, antithetic, *kind, _range(rows, states, draws))


def check_count(name: str, number: Any, least: int) -> None:
    """A whole number that is large enough."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise InputError(f"pathwise: expected {name} to be {least} or more, got {number!r}")


def _draws(noise: Noise, states: States, seed: int, sampler: str, paths: int) -> Draws:
    if isinstance(noise, Tensor):
        _check_given(noise, states, paths)
        return Given(noise.detach(), states.uniforms)
    shape = (noise,) if isinstance(noise, int) else tuple(noise)
    if not all(isinstance(n, int) and n > 0 for n in shape):
        raise InputError(
            f"pathwise: expected noise to be the shape of one path's normals, or a tensor [N, …], "
            f"got {noise!r}"
        )
    return _SAMPLERS[sampler](seed, states.uniforms, shape, paths)


def _check_given(noise: Tensor, states: States, paths: int) -> None:
    rows = states.rows
    if paths > 1:
        raise InputError(
            "pathwise: paths_per_state needs noise that is drawn: pass the shape of one path's "
            "noise instead of a tensor"
        )
    if noise.dim() == 0 or (rows not in (None, len(noise)) and len(noise) != 1):
        raise ShapeError(
            f"pathwise: expected noise [N, …] with N = {rows} rows, as the state has, got "
            f"{list(noise.shape)}"
        )
    if rows != 1 and noise.numel() and bool((noise == noise[:1]).all()):
        raise InputError(
            "pathwise: all rows share one draw of the noise. Their errors then have one sign and "
            "do not average out, neither in the mean nor in what a network learns (the error of "
            "mean labels was 51 times that of independent rows). Pass the shape of one path's "
            "noise, or a tensor with a draw of its own for each row."
        )


def _kind(
    states: States, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[torch.dtype, torch.device]:
    if states.drawn:
        return dtype or torch.float64, torch.device(device or "cpu")
    if dtype is not None or device is not None:
        raise InputError("pathwise: a given state decides dtype and device; convert it instead")
    floating = [part for part in states.parts if part.is_floating_point()]
    kind = floating[0].dtype
    for part in floating[1:]:
        kind = torch.promote_types(kind, part.dtype)
    return kind, floating[0].device


def _range(rows: int | range | None, states: States, draws: Draws) -> range:
    """Numbers of the rows."""
    if isinstance(rows, int):
        rows = range(rows)
    if states.rows is not None:
        rows = range(states.rows) if rows is None else rows
        if len(rows) != states.rows:
            raise InputError(
                f"pathwise: expected rows to number the {states.rows} rows of the state, got "
                f"{rows}; leave it out to number them from 0"
            )
    if rows is None:
        raise InputError("pathwise: a state that is drawn needs rows=, how many rows to draw")
    if not rows or rows.step != 1 or rows.start < 0:
        raise InputError(f"pathwise: expected at least one row, got rows={rows}")
    return range(len(rows)) if isinstance(draws, Given) else rows
