"""Tables with derivatives in files: parquet, npz and csv in, the same out.

>>> import numpy as np, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp(), "rows.csv")
>>> columns = Columns(("spot", "vol"), ("price",))
>>> write_table(path, Table(columns, np.ones((3, 2)), np.ones((3, 1)), np.zeros((3, 1, 2))))
>>> read_table(path, x=["spot,vol"], y=["price"]).dydx.shape
(3, 1, 2)
"""

from pullback.learning.columns import Columns
from pullback.tables.layout import Layout, choose, locate
from pullback.tables.replacing import replacing
from pullback.tables.source import Roles, Source, open_source, suffix_of
from pullback.tables.table import CHUNK_ROWS, Table, iter_chunks, read_all, read_table
from pullback.tables.writing import open_writer, write_table

__all__ = [
    "CHUNK_ROWS",
    "Columns",
    "Layout",
    "Roles",
    "Source",
    "Table",
    "choose",
    "iter_chunks",
    "locate",
    "open_source",
    "open_writer",
    "read_all",
    "read_table",
    "replacing",
    "suffix_of",
    "write_table",
]
