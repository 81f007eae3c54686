"""Where in the user's source something happened: strings and integers, no frames."""

import os
import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from pullback.doctor.owners import LIBRARIES, locals_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Site:
    """A place in the user's source.

    Attributes:
        file: path of the file.
        line: its line.
        function: name of the function.
        module: class of the `nn.Module` whose method this is, or "".
        offset: of the instruction, since two calls may share a line.
    """

    file: str
    line: int
    function: str
    module: str = ""
    offset: int = -1

    def __str__(self) -> str:
        owner = f" of {self.module}" if self.module else ""
        place = "" if self.function == "<module>" else f" in {self.function}{owner}"
        return f"{_shown(self.file)}:{self.line}{place}"


def _shown(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative


_IN_TORCH: dict[CodeType, bool] = {}
_IN_LIBRARY: dict[CodeType, bool] = {}


def in_torch(code: CodeType) -> bool:
    """Whether code belongs to torch or to this package."""
    known = _IN_TORCH.get(code)
    if known is None:
        known = _IN_TORCH[code] = code.co_filename.startswith((_TORCH, _OWN))
    return known


def in_library(code: CodeType) -> bool:
    """Whether code is nobody's own: torch, the standard library, an installed package."""
    known = _IN_LIBRARY.get(code)
    if known is None:
        name = code.co_filename
        known = in_torch(code) or name.startswith(LIBRARIES) or name.startswith("<frozen")
        _IN_LIBRARY[code] = known
    return known


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code; failing that, the innermost outside torch."""
    outside = None
    known = _IN_LIBRARY.get  # called for every operation: a call a frame less
    while frame is not None:
        library = known(frame.f_code)
        if library is None:
            library = in_library(frame.f_code)
        if not library:
            return frame
        if outside is None and not in_torch(frame.f_code):
            outside = frame
        frame = frame.f_back
    return outside


def user_frames(frame: FrameType | None) -> list[FrameType]:
    """The user's own frames, outermost first."""
    frames = []
    while frame is not None:
        if not in_library(frame.f_code):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def site_of(frame: FrameType | None) -> Site:
    """The site of a frame."""
    if frame is None:
        return Site("<unknown>", 0, "<unknown>")
    owner: Any = locals_of(frame).get("self") if frame.f_code.co_name != "<module>" else None
    module = type(owner).__name__ if isinstance(owner, nn.Module) else ""
    code = frame.f_code
    return Site(code.co_filename, frame.f_lineno or 0, code.co_name, module, frame.f_lasti)


def caller(depth: int = 1) -> FrameType | None:
    """The frame `depth` above the one that asks."""
    return sys._getframe(depth + 1)


_DEEP = 60  # twenty frames tell calls apart; test runners add forty that are always the same


def locate(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """The user's innermost frame, and a number for the stack of calls from there on.

    The number goes by instruction and not only by line, and by file names, not code objects, so
    that a notebook cell that is run again counts as the same.
    """
    parts: list[Any] = []
    mine = frame = user_frame(frame)
    while frame is not None and len(parts) < _DEEP:
        code = frame.f_code
        parts += (frame.f_lasti, code.co_filename, code.co_name)
        frame = frame.f_back
    return mine, hash(tuple(parts))
