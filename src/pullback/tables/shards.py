"""Rows that take long to make, kept as they are made: a run that breaks off goes on where it was.

Shards lie in a folder beside the file, .NAME.shards, until the file is whole. A note in the folder
says what they were made from; other arguments start anew.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pullback.tables.layout import choose
from pullback.tables.replacing import replacing
from pullback.tables.source import open_source, suffix_of
from pullback.tables.table import Table, iter_chunks
from pullback.tables.writing import open_writer, write_table

_NOTE = "made-from.json"


def write_in_shards(
    path: str | Path,
    rows: int,
    make: Callable[[range], Table],
    *,
    shard_rows: int,
    made_from: Mapping[str, Any],
    told: Callable[[int], None] = lambda done: None,
) -> int:
    """Write rows as they are made, at most one shard of them in memory and at risk.

    Args:
        path: of the file: parquet, npz or csv.
        rows: in all.
        make: gives the rows of a range.
        shard_rows: rows of a shard.
        made_from: what decides the rows; shards made from something else are not used.
        told: is told how many rows are there.

    Returns:
        How many rows an earlier run had left.

    Raises:
        FileError: the folder is not there, or the name's ending is not known.
        MissingExtraError: a parquet file without pyarrow.

    >>> import tempfile, numpy as np
    >>> from pullback.learning import Columns
    >>> path = Path(tempfile.mkdtemp(), "rows.npz")
    >>> def squares(rows):
    ...     x = np.arange(rows.start, rows.stop, dtype=float)[:, None]
    ...     return Table(Columns(("x",), ("y",)), x, x**2, 2 * x[:, :, None])
    >>> write_in_shards(path, 10, squares, shard_rows=4, made_from={"seed": 0})
    0
    >>> [len(chunk) for chunk in iter_chunks(open_source(path), choose(open_source(path)))]
    [10]
    """
    path = Path(path)
    suffix_of(path)
    folder = path.with_name(f".{path.name}.shards")
    _prepare(folder, {**made_from, "rows": rows, "shard_rows": shard_rows})
    ranges = [range(i, min(i + shard_rows, rows)) for i in range(0, rows, shard_rows)]
    shards = [folder / f"{i:08d}.npz" for i in range(len(ranges))]
    found = sum(len(part) for part, shard in zip(ranges, shards, strict=True) if shard.exists())
    told(found)
    done = found
    for part, shard in zip(ranges, shards, strict=True):
        if not shard.exists():
            write_table(shard, make(part))
            done += len(part)
            told(done)
    _join(path, shards)
    shutil.rmtree(folder)
    return found


def _prepare(folder: Path, made_from: Mapping[str, Any]) -> None:
    """An empty folder, or one with shards of the same rows."""
    note = folder / _NOTE
    text = json.dumps(made_from, sort_keys=True, indent=1)
    if note.is_file() and note.read_text(encoding="utf-8") == text:
        return
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    with replacing(note) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _join(path: Path, shards: list[Path]) -> None:
    source = open_source(shards[0])
    layout = choose(source)
    with open_writer(path, layout.columns) as write:
        for shard in shards:
            for chunk in iter_chunks(open_source(shard), layout):
                write(chunk, {})
