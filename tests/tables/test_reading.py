"""What is written is read back, in every format, with names, roles and units."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pullback.errors import TableError
from pullback.tables import (
    Columns,
    Table,
    choose,
    iter_chunks,
    locate,
    open_source,
    open_writer,
    read_table,
    write_table,
)

SUFFIXES = (".parquet", ".npz", ".csv")
COLUMNS = Columns(("spot", "vol"), ("price", "fee"), {"spot": "USD", "price": "EUR"})


def table(rows=7, columns=COLUMNS):
    rng = np.random.default_rng(3)
    inputs, outputs = len(columns.inputs), len(columns.outputs)
    y = rng.normal(size=(rows, outputs))
    dydx = rng.normal(size=(rows, outputs, inputs))
    y[1, 0] = dydx[0, 0, 1] = np.nan
    return Table(columns, rng.normal(size=(rows, inputs)) * 1e-7, y, dydx)


def assert_same(got, expected):
    np.testing.assert_array_equal(got.x, expected.x)
    np.testing.assert_array_equal(got.y, expected.y)
    np.testing.assert_array_equal(got.dydx, expected.dydx)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_written_table_reads_back_bit_for_bit(tmp_path, suffix):
    path, expected = tmp_path / f"rows{suffix}", table()
    write_table(path, expected)
    got = read_table(path, x=["spot,vol"], y=["price", "fee"])
    assert_same(got, expected)
    units = {} if suffix == ".csv" else dict(COLUMNS.units)
    assert got.columns == Columns(COLUMNS.inputs, COLUMNS.outputs, units)


@settings(max_examples=25, deadline=None)
@given(
    values=arrays(float, (5, 4), elements=st.floats(allow_infinity=False, allow_nan=False)),
    suffix=st.sampled_from(SUFFIXES),
)
def test_every_number_survives(tmp_path_factory, values, suffix):
    """Subnormal, huge, negative zero: the same bits come back."""
    path = tmp_path_factory.mktemp("rows") / f"rows{suffix}"
    write_table(path, Table(COLUMNS, values[:, :2], values[:, 2:]))
    got = read_table(path, x=["spot,vol"], y=["price,fee"])
    assert np.concatenate([got.x, got.y], axis=1).tobytes() == values.tobytes()


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_roles_travel_with_the_file(tmp_path, suffix):
    path, expected = tmp_path / f"rows{suffix}", table()
    write_table(path, expected)
    got = read_table(path)
    assert_same(got, expected)
    assert got.columns == COLUMNS


def test_roles_follow_a_renamed_parquet_column(tmp_path):
    path = tmp_path / "rows.parquet"
    write_table(path, table())
    data = pq.read_table(path)
    assert data.column_names[4] == "dprice/dspot"
    fields = [field.with_name("delta") if i == 4 else field for i, field in enumerate(data.schema)]
    pq.write_table(pa.Table.from_arrays(data.columns, schema=pa.schema(fields)), path)
    np.testing.assert_array_equal(read_table(path).dydx, table().dydx)


def test_field_units_of_derivatives_are_quotients(tmp_path):
    path = tmp_path / "rows.parquet"
    write_table(path, table())
    field = pq.read_schema(path).field("dprice/dspot")
    assert field.metadata[b"unit"] == b"EUR/USD"
    assert (field.metadata[b"output"], field.metadata[b"input"]) == (b"price", b"spot")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_chunks_join_to_the_whole(tmp_path, suffix, rows):
    path, expected = tmp_path / f"rows{suffix}", table()
    with open_writer(path, COLUMNS) as write:  # written in blocks, too
        for start in (0, 2, 4, 6):
            part = slice(start, start + 2)
            block = Table(COLUMNS, expected.x[part], expected.y[part], expected.dydx[part])
            write(block, {"outside": block.x[:, 0] > 0})
    source = open_source(path)
    layout = choose(source, x=["spot", "vol"], y=["price", "fee"])
    chunks = list(iter_chunks(source, layout, rows=rows))
    assert all(len(chunk) <= rows for chunk in chunks)
    got = Table(
        COLUMNS, *(np.concatenate([getattr(c, k) for c in chunks]) for k in ("x", "y", "dydx"))
    )
    assert_same(got, expected)
    assert "outside" in source.names


@pytest.mark.parametrize(
    ("x", "dydx"),
    [
        (["x*"], None),
        (["x0,x1"], ["dy/d*"]),
        (["x0", "x1"], ["dy/dx1,dy/dx0"]),
        (["x[01]"], ["dy/dx0=dy/dx0", "dy/dx1"]),
    ],
)
def test_columns_by_list_pattern_and_name(tmp_path, x, dydx):
    path = tmp_path / "rows.csv"
    path.write_text("x0,x1,y,dy/dx0,dy/dx1\n1,2,3,4,5\n")
    got = read_table(path, x=x, y=["y"], dydx=dydx)
    np.testing.assert_array_equal(got.x, [[1, 2]])
    np.testing.assert_array_equal(got.dydx, [[[4, 5]]])


def test_derivatives_under_other_names(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("s,v,price,delta,vega\n1,2,3,4,5\n")
    named = {"x": ["s,v"], "y": ["price"]}
    in_order = read_table(path, **named, dydx=["delta,vega"])
    np.testing.assert_array_equal(in_order.dydx, [[[4, 5]]])
    one = read_table(path, **named, dydx=["dprice/dv=delta"])
    np.testing.assert_array_equal(one.dydx, [[[np.nan, 4]]])
    assert read_table(path, **named).dydx is None
    with pytest.raises(TableError, match=r"cannot tell which derivative 'vega' is; .*=vega"):
        read_table(path, **named, dydx=["vega"])


def test_derivatives_found_by_name_can_be_left_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,y,dy/dx\n1,2,3\n")
    assert read_table(path, x=["x"], y=["y"]).dydx[0, 0, 0] == 3
    assert read_table(path, x=["x"], y=["y"], dydx=()).dydx is None


def test_npz_arrays_without_names(tmp_path):
    path, expected = tmp_path / "rows.npz", table()
    np.savez_compressed(path, x=expected.x, y=expected.y[:, 0], dydx=expected.dydx[:, 0])
    got = read_table(path)
    assert got.columns == Columns(("x0", "x1"), ("y",))
    np.testing.assert_array_equal(got.dydx, expected.dydx[:, :1])


def test_npz_inputs_alone_keep_their_names(tmp_path):
    path, whole = tmp_path / "rows.npz", table()
    write_table(path, Table(COLUMNS, whole.x))
    source = open_source(path)
    assert source.names == ("spot", "vol")
    (chunk,) = iter_chunks(source, locate(source, COLUMNS, truths=False))
    np.testing.assert_array_equal(chunk.x, whole.x)


def test_npz_without_names_says_how_to_take_arrays(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, x=table().x)
    source = open_source(path)
    with pytest.raises(TableError, match="Whole arrays go by their names: x"):
        locate(source, COLUMNS, truths=False)
    (chunk,) = iter_chunks(source, locate(source, COLUMNS, x=["x"], truths=False))
    np.testing.assert_array_equal(chunk.x, table().x)


def test_npz_arrays_under_other_names_and_orders(tmp_path):
    path, expected = tmp_path / "rows.npz", table()
    np.savez(
        path,
        states=np.asfortranarray(expected.x),
        payoff=expected.y[:, 0].astype(np.float32),
        slopes=expected.dydx[:, 0],
        count=np.int64(3),
    )
    got = read_table(path, x=["states"], y=["payoff"], dydx=["slopes"])
    assert got.columns.inputs == ("states0", "states1")
    np.testing.assert_array_equal(got.x, expected.x)
    np.testing.assert_array_equal(got.y[:, 0], expected.y[:, 0].astype(np.float32))
    np.testing.assert_array_equal(got.dydx, expected.dydx[:, :1])


def test_a_models_columns_are_located_in_any_order(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("note,vol,spot\nhello,2,1\n")
    source = open_source(path)
    layout = locate(source, COLUMNS, truths=False)
    (chunk,) = iter_chunks(source, layout)
    np.testing.assert_array_equal(chunk.x, [[1, 2]])
    assert chunk.y is None
    swapped = locate(source, COLUMNS, x=["vol,spot"], truths=False)
    np.testing.assert_array_equal(next(iter_chunks(source, swapped)).x, [[2, 1]])
    with pytest.raises(TableError, match="expected 2 columns for the model's inputs"):
        locate(source, COLUMNS, x=["vol"], truths=False)
    with pytest.raises(TableError, match="no column 'price', one of the model's outputs"):
        locate(source, COLUMNS)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_dialects(tmp_path, delimiter):
    path = tmp_path / "rows.CSV"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\r\n")
        writer.writerows([['na "me"', "y"], [" 1 ", "NaN"], [], ["2e3", ""], ["-3", "N/A"]])
    got = read_table(path, x=['na "me"'], y=["y"])
    np.testing.assert_array_equal(got.x, [[1], [2000], [-3]])
    assert np.isnan(got.y).all()


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.float16(), pa.float32(), pa.bool_(), pa.decimal128(9, 2)]
)
def test_parquet_number_types(tmp_path, kind):
    path = tmp_path / "rows.parquet"
    column = pa.array([True, None, False]).cast(pa.int8()).cast(kind)
    pq.write_table(pa.table({"a": [1, 2, 3], "a.b": column, "y": [None] * 3}), path)
    got = read_table(path, x=["a"], y=["a.b", "y"])
    np.testing.assert_array_equal(got.x[:, 0], [1, 2, 3])
    np.testing.assert_array_equal(got.y[:, 0], [1, np.nan, 0])
    assert np.isnan(got.y[:, 1]).all()


def test_parquet_dictionaries_of_numbers(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"a": pa.array([2.5, 1.5, 2.5]).dictionary_encode(), "y": [1, 2, 3]}), path
    )
    np.testing.assert_array_equal(read_table(path, x=["a"], y=["y"]).x[:, 0], [2.5, 1.5, 2.5])
