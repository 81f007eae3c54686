"""Predicting a large file takes the memory of a chunk, not of the file."""

import subprocess
import sys

import numpy as np
import pytest
from tests.cli.conftest import run

from pullback.tables import Columns, Table, write_table

INPUTS = 7
COLUMNS = Columns(tuple(f"x{d}" for d in range(INPUTS)), ("y",))
FEW, MANY = 200_000, 1_000_000
# What the rows in between would take, in and out: x, y, dydx and the flag, in bytes.
WHOLE = (MANY - FEW) * (8 * (2 * INPUTS + 1) + 1)

# The high-water mark of this process alone: that of getrusage is also its parent's before exec.
CHILD = """
import sys
import pullback.cli.predict as predict
from pullback.cli import main
predict.CHUNK_ROWS = int(sys.argv[1])
main(sys.argv[2:], standalone_mode=False)
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


def write_rows(path, rows):
    """As one row group, which a reader might take in at once."""
    x = np.random.default_rng(0).normal(size=(rows, INPUTS))
    write_table(path, Table(COLUMNS, x))


def peak(chunk, *args):
    command = [sys.executable, "-c", CHILD, str(chunk), *map(str, args), "--quiet", "--force"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_memory_does_not_grow_with_the_file(here):
    x = np.random.default_rng(1).normal(size=(100, INPUTS))
    write_table("train.npz", Table(COLUMNS, x, x[:, :1] ** 2))
    assert run("fit", "train.npz", "-o", "m", "--hidden", "4", "--epochs", 2).exit_code == 0
    write_rows("few.parquet", FEW)
    write_rows("many.parquet", MANY)
    args = ("-o", "out.parquet")
    few = peak(65_536, "predict", "m", "few.parquet", *args)
    many = peak(65_536, "predict", "m", "many.parquet", *args)
    assert many - few < 0.3 * WHOLE
    # The same measurement sees a file that is held whole.
    assert peak(MANY, "predict", "m", "many.parquet", *args) - few > WHOLE
