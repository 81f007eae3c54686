"""Compile the native step with the system's compiler, once a machine, and find it again.

Built on demand and not at install, so that the package stays pure Python, installs without a
compiler, and the code is made for the processor it runs on. The kernel has a plain C interface: no
headers of torch or Python, three seconds to compile, and nothing tied to their versions.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from pullback.errors import NativeBuildError

SOURCE = Path(__file__).with_name("step.cpp")
# -ffast-math promises finite numbers: unknown labels reach the kernel as zeros of weight zero.
COMPILE: tuple[str, ...] = ("-O3", "-march=native", "-ffast-math", "-std=c++17", "-fPIC")
if platform.machine() in ("x86_64", "AMD64"):
    # Compilers use half of AVX-512 for fear of lower clocks; measured, the whole is 15 % faster.
    COMPILE += ("-mprefer-vector-width=512",)


def build() -> Path:
    """Compile the kernel, if this machine has not got it yet.

    Returns:
        Where the library lies: in the user's cache folder.

    Raises:
        NativeBuildError: there is no C++ compiler, or it failed; the message holds its words.
    """
    target = _target()
    if target.exists():
        return target
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise NativeBuildError(
            "no C++ compiler found (c++, g++, or the one that CXX names). Training works without; "
            "with one, such as Debian's g++, small networks train about ten times as fast."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made, parts = Path(folder) / target.name, Path(folder) / "step.o"
            _run(compiler, *COMPILE, "-c", str(SOURCE), "-o", str(parts))
            # Linked without -ffast-math: with it, loading the library would switch the whole
            # process to flushing denormals, which is the caller's state.
            _run(compiler, "-shared", str(parts), "-o", str(made), "-lm")
            made.replace(target)
    except OSError as error:
        raise NativeBuildError(f"the cache folder can't be written: {error}") from None
    return target


def _run(compiler: str, *arguments: str) -> None:
    result = subprocess.run(
        [*compiler.split(), *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise NativeBuildError(f"{compiler} failed: {result.stderr.strip()}")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, built at first use; None where that can't be, see `why_not`."""
    try:
        return None if os.environ.get("PULLBACK_NATIVE") == "0" else ctypes.CDLL(str(build()))
    except (NativeBuildError, OSError) as error:
        _reasons.append(str(error))
        return None


def why_not() -> str:
    """Why there is no compiled kernel; empty if there is one."""
    if library() is not None:
        return ""
    return _reasons[-1] if _reasons else "switched off by PULLBACK_NATIVE=0"


_reasons: list[str] = []


def _target() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    content = SOURCE.read_bytes() + repr((COMPILE, platform.machine(), _processor())).encode()
    return cache / "pullback" / f"step-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _processor() -> str:
    """What -march=native looks at: a home folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), "")
