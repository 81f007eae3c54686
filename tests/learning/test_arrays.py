"""Everything that may come in, comes in as the same three arrays; what may not is told why."""

import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from pullback.errors import DtypeError, InputError, MissingExtraError, ShapeError
from pullback.learning.arrays import as_inputs, as_labels, like_input

N, K, D = 5, 2, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = RNG.normal(size=(N, K))
Z = RNG.normal(size=(N, K, D))
NAMES = ["spot", "vol", "rate"]

KINDS = {
    "numpy": lambda a: a,
    "fortran order": np.asfortranarray,
    "reversed view": lambda a: a[::-1].copy()[::-1],
    "list": lambda a: a.tolist(),
    "tensor": torch.from_numpy,
    "tensor with graph": lambda a: torch.from_numpy(a).requires_grad_() * 1.0,
    "object": lambda a: a.astype(object),
    "pandas": lambda a: pd.DataFrame(a) if a.ndim == 2 else a,
    "polars": lambda a: pl.DataFrame(a) if a.ndim == 2 else a,
    "arrow": lambda a: (
        pa.table([pa.array(c) for c in a.T], list("abc"[: a.shape[1]])) if a.ndim == 2 else a
    ),
}


class TestKinds:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_gives_the_same_arrays(self, kind):
        make = KINDS[kind]
        labels = as_labels("fit", make(X), make(Y), make(Z))
        np.testing.assert_array_equal(labels.x, X)
        np.testing.assert_array_equal(labels.y, Y)
        np.testing.assert_array_equal(labels.dydx, Z)
        for array in (labels.x, labels.y, labels.dydx):
            assert type(array) is np.ndarray
            assert array.dtype == labels.dtype == np.float64
            assert array.flags.c_contiguous
            assert array.flags.writeable

    @pytest.mark.parametrize(
        "series", [pd.Series, pl.Series, lambda v: pa.chunked_array([v]), pa.array, pd.Index]
    )
    def test_series_is_one_output(self, series):
        labels = as_labels("fit", X, series(Y[:, 0]))
        assert labels.single_output
        np.testing.assert_array_equal(labels.y, Y[:, :1])

    @pytest.mark.parametrize(
        "series",
        [
            pd.Series([1, None, 3], dtype="Int64"),
            pl.Series([1, None, 3]),
            pa.chunked_array([[1, None, 3]]),
            [1, None, 3],
            pd.Series([1, pd.NA, 3], dtype=object),
            np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
        ],
    )
    def test_null_none_and_masked_are_unknown(self, series):
        labels = as_labels("fit", X[:3], series)
        np.testing.assert_array_equal(labels.y[:, 0], [1.0, np.nan, 3.0])

    def test_names_of_frames_and_series(self):
        labels = as_labels(
            "fit", pl.DataFrame(X, schema=NAMES), pd.DataFrame(Y, columns=["bid", "ask"])
        )
        assert labels.input_names == tuple(NAMES)
        assert labels.output_names == ("bid", "ask")
        assert as_labels("fit", X, pd.Series(Y[:, 0], name="price")).output_names == ("price",)
        unnamed = as_labels("fit", pd.DataFrame(X), pd.Series(Y[:, 0]))
        assert unnamed.input_names is unnamed.output_names is None

    @pytest.mark.parametrize(
        ("x", "y", "expected"),
        [
            (np.float32, np.float32, np.float32),
            (np.float32, np.int64, np.float32),
            (np.float16, np.float32, np.float32),
            (np.float32, np.float64, np.float64),
            (np.int8, bool, np.float64),
            (np.longdouble, np.float32, np.float64),
        ],
    )
    def test_dtype_follows_the_floats(self, x, y, expected):
        labels = as_labels("fit", np.ones((2, 1), x), np.ones(2, y))
        assert labels.dtype == labels.x.dtype == labels.y.dtype == expected

    def test_bfloat16_tensor_is_held_exactly(self):
        x = torch.tensor([[1.5], [-0.375]], dtype=torch.bfloat16)
        assert as_labels("fit", x, [1, 2]).x.tolist() == [[1.5], [-0.375]]

    def test_nothing_of_the_callers_changes(self):
        x = torch.from_numpy(X.copy()).requires_grad_()
        read_only = Z.copy()
        read_only.flags.writeable = False
        labels = as_labels("fit", x, Y, read_only)
        labels.dydx[:] = 0.0
        assert x.requires_grad
        np.testing.assert_array_equal(read_only, Z)

    def test_frame_without_narwhals_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "narwhals", None)
        with pytest.raises(
            MissingExtraError, match=r"fit: reading X from a polars DataFrame.*pullback\[frames\]"
        ):
            as_labels("fit", pl.DataFrame(X), Y)
        as_labels("fit", X, torch.from_numpy(Y), Z.tolist())


class TestDifferentialForms:
    def test_one_output(self):
        for given in (Z[:, 0], Z[:, :1], pd.DataFrame(Z[:, 0])):
            labels = as_labels("fit", X, Y[:, 0], given)
            np.testing.assert_array_equal(labels.dydx, Z[:, :1])

    def test_frame_by_input_name_in_any_order_and_partly(self):
        x = pd.DataFrame(X, columns=NAMES)
        given = pl.DataFrame({"rate": Z[:, 0, 2], "spot": Z[:, 0, 0]})
        labels = as_labels("fit", x, Y[:, 0], given)
        np.testing.assert_array_equal(labels.dydx[:, 0, [0, 2]], Z[:, 0][:, [0, 2]])
        assert np.isnan(labels.dydx[:, 0, 1]).all()

    @pytest.mark.parametrize(
        ("keys", "outputs"),
        [
            (["dask/dvol", "dbid/drate"], ["bid", "ask"]),
            (["dy1/dvol", "dy0/drate"], None),
            ([("ask", "vol"), ("bid", "rate")], ["bid", "ask"]),
        ],
    )
    def test_pairs(self, keys, outputs):
        y = Y if outputs is None else pd.DataFrame(Y, columns=outputs)
        x = pd.DataFrame(X, columns=NAMES)
        labels = as_labels("fit", x, y, dict(zip(keys, [Z[:, 1, 1], Z[:, 0, 2]], strict=True)))
        np.testing.assert_array_equal(labels.dydx[:, 1, 1], Z[:, 1, 1])
        np.testing.assert_array_equal(labels.dydx[:, 0, 2], Z[:, 0, 2])
        assert np.isnan(labels.dydx).sum() == N * (K * D - 2)

    def test_unnamed_inputs_are_x0_x1(self):
        labels = as_labels("fit", X, Y[:, 0], {"x2": Z[:, 0, 2], "dy/dx0": Z[:, 0, 0]})
        np.testing.assert_array_equal(labels.dydx[:, 0, [0, 2]], Z[:, 0][:, [0, 2]])

    def test_values_may_be_unknown_throughout(self):
        labels = as_labels("fit", X, None, Z)
        assert labels.y.shape == (N, K)
        assert np.isnan(labels.y).all()
        assert as_labels("fit", X, None, Z[:, 0].tolist()).single_output

    def test_weights(self):
        given = as_labels("fit", X, Y, Z, sample_weight=range(N), dydx_weight=[1, 0, 2])
        assert given.sample_weight.tolist() == [0, 1, 2, 3, 4]
        assert given.dydx_weight.shape == (1, 1, D)
        one = as_labels("fit", X, Y[:, 0], Z[:, 0], dydx_weight=np.ones((N, D)))
        assert one.dydx_weight.shape == (N, 1, D)


SHAPES = {
    "inputs first": (Z[:, 0].T, Y[:, 0], r"looks like \[D, N\]; pass dydx.T"),
    "outputs last": (Z.transpose(0, 2, 1), Y, r"\[N, D, K\]; pass np.transpose\(dydx, \(0, 2, 1"),
    "outputs first": (Z.transpose(1, 0, 2), Y, r"\[K, N, D\]; pass np.transpose\(dydx, \(1, 0, 2"),
    "rows last": (Z.transpose(1, 2, 0), Y, r"\[K, D, N\]; pass np.transpose\(dydx, \(2, 0, 1"),
    "all reversed": (Z.transpose(2, 1, 0), Y, r"\[D, K, N\]; pass np.transpose\(dydx, \(2, 1, 0"),
    "flat": (Z.reshape(N, -1), Y, r"pass dydx.reshape\(5, 2, 3\)"),
    "one of two outputs": (Z[:, 0], Y, "derivatives of one of them"),
    "y sliced by a wrapper": (Z, Y[:, 0], "MultiOutputRegressor, passes dydx whole"),
    "x sliced by a wrapper": (np.ones((8, D)), Y[:, 0], r"5 rows and dydx 8.*set_fit_request"),
    "wrong width": (Z[:, :, :2], Y, r"\[N, K, D\] with N=5 rows, K=2 outputs and D=3 inputs"),
    "column too short": ({"x0": [1.0, 2.0]}, Y[:, 0], r"dydx\['x0'\] of shape \[N\] = \(5,\)"),
}


class TestRefusals:
    @pytest.mark.parametrize("case", SHAPES)
    def test_shape_of_dydx(self, case):
        dydx, y, words = SHAPES[case]
        with pytest.raises(ShapeError, match=words) as caught:
            as_labels("Model.fit", X, y, dydx)
        assert str(caught.value).startswith("Model.fit: expected dydx")

    @pytest.mark.parametrize("case", ["outputs last", "outputs first", "rows last", "all reversed"])
    def test_the_way_out_of_a_transpose_is_right(self, case):
        dydx, y, _ = SHAPES[case]
        with pytest.raises(ShapeError) as caught:
            as_labels("fit", X, y, dydx)
        order = str(caught.value).rpartition("(dydx, ")[2].rstrip(")").lstrip("(")
        np.testing.assert_array_equal(dydx.transpose([int(i) for i in order.split(",")]), Z)

    def test_one_input_and_one_output(self):
        with pytest.raises(ShapeError, match=r"pass dydx.reshape\(-1, 1\)"):
            as_labels("fit", X[:, :1], Y[:, 0], Z[:, 0, 0])

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            (X[0], Y, r"expected X of shape \[N, D\], got \(3,\).*Reshape your data"),
            (X[:, :0], Y, r"0 feature\(s\) \(shape=\(5, 0\)\)"),
            (X[:0], Y[:0], r"0 sample\(s\)"),
            (X, Y.T, r"N=5 rows as in X, got \(2, 5\): pass y.T"),
            (X, Y[:4], r"N=5 rows as in X, got \(4, 2\)"),
            (X, Z, r"expected y of shape \[N\] or \[N, K\]"),
            ([[1.0, 2.0], [3.0]], [1.0, 2.0], "X must form a rectangular array"),
            (pl.LazyFrame({"a": [1.0]}), [1.0], r"a frame, got LazyFrame: call its collect\(\)"),
            ({"a": [1.0]}, [1.0], "X must be an array, .* got dict"),
        ],
    )
    def test_shape_of_x_and_y(self, x, y, words):
        with pytest.raises(ShapeError, match=words):
            as_labels("fit", x, y)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_x_must_be_finite(self, value):
        x = pd.DataFrame(X, columns=NAMES)
        x.iloc[3, 1] = value
        shown = "NaN" if np.isnan(value) else f"{value}"
        with pytest.raises(InputError, match=rf"X must be finite, row 3, column 'vol' is {shown}"):
            as_labels("fit", x, Y)
        with pytest.raises(InputError, match=r"row 3, column 1 is .* \(1 such"):
            as_inputs("predict", x.to_numpy(), n_features=D)

    def test_labels_may_be_unknown_but_not_infinite(self):
        y, dydx = Y.copy(), Z.copy()
        y[0, 1], dydx[2, 1, 0] = np.nan, np.nan
        labels = as_labels("fit", X, y, dydx)
        assert np.isnan(labels.y).sum() == np.isnan(labels.dydx).sum() == 1
        y[4, 1] = np.inf
        with pytest.raises(InputError, match=r"y may hold NaN .* row 4, column 1 is inf"):
            as_labels("fit", X, y, dydx)
        dydx[4, 1, 2] = -np.inf
        with pytest.raises(InputError, match=r"dydx may .* row 4, output 1, column 2 is -inf"):
            as_labels("fit", X, Y, dydx)

    @pytest.mark.parametrize(
        ("x", "words"),
        [
            ([[1.0, "2.0"]], "row 0, column 1 holds '2.0': text is never parsed"),
            (np.array([["a"]]), "row 0, column 0 holds 'a'"),
            (pl.DataFrame({"a": ["b"]}), "row 0, column 'a' holds 'b'"),
            (np.array([[{}]], object), "holds {}: .*argument must be a string or a real number"),
            (np.array([["2020-01-01"]], "M8[D]"), r"real numbers, got dtype datetime64\[D\]"),
        ],
    )
    def test_what_is_no_number(self, x, words):
        with pytest.raises(DtypeError, match=words):
            as_labels("fit", x, [1.0])

    @pytest.mark.parametrize(
        ("x", "words"),
        [
            (X + 1j, "Complex data not supported: X has dtype complex128"),
            (sparse.csr_array(X), "X is sparse"),
            (torch.from_numpy(X).to_sparse(), "X is sparse"),
        ],
    )
    def test_complex_and_sparse(self, x, words):
        with pytest.raises(InputError, match=words):
            as_labels("fit", x, Y)

    def test_names_of_dydx(self):
        x = pd.DataFrame(X, columns=NAMES)
        with pytest.raises(InputError, match="dydx names 'gamma', expected one of 'spot'"):
            as_labels("fit", x, Y[:, 0], {"gamma": Z[:, 0, 0]})
        with pytest.raises(InputError, match="one derivative twice, 'spot' and 'dy/dspot'"):
            as_labels("fit", x, Y[:, 0], {"spot": Z[:, 0, 0], "dy/dspot": Z[:, 0, 0]})
        with pytest.raises(InputError, match="dydx names 'spot'"):
            as_labels("fit", x, Y, {"spot": Z[:, 0, 0]})

    def test_columns_of_one_name(self):
        with pytest.raises(
            InputError, match=r"(?s)fit: X cannot be read from a pandas DataFrame.*'a'"
        ):
            as_labels("fit", pd.DataFrame(X, columns=["a", "a", "b"]), Y)

    def test_no_label(self):
        with pytest.raises(InputError, match="requires y to be passed, but the target y is None"):
            as_labels("fit", X, None)
        with pytest.raises(InputError, match="every label is NaN"):
            as_labels("fit", X, np.full(N, np.nan), np.full((N, D), np.nan))

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            ({"sample_weight": np.ones(4)}, r"sample_weight of shape \[N\] = \(5,\)"),
            ({"sample_weight": np.zeros(N)}, "every sample_weight is zero"),
            ({"sample_weight": -np.ones(N)}, "sample_weight must not be negative, got -1"),
            ({"sample_weight": np.full(N, np.nan)}, "sample_weight must be finite, row 0 is NaN"),
            ({"dydx_weight": np.ones(4)}, r"broadcasts to \[N, K, D\] = \(5, 2, 3\)"),
            ({"dydx_weight": [1, -1, 1]}, "dydx_weight must not be negative"),
        ],
    )
    def test_weights(self, weights, words):
        with pytest.raises(InputError, match=words):
            as_labels("fit", X, Y, Z, **weights)


class TestInputs:
    def test_count(self):
        with pytest.raises(ShapeError, match=r"expected X of shape \[N, 2\], got \(5, 3\)"):
            as_inputs("predict", X, n_features=2)

    def test_names(self):
        x = pd.DataFrame(X, columns=NAMES)
        names = tuple(NAMES)
        np.testing.assert_array_equal(as_inputs("p", x, n_features=D, input_names=names), X)
        with pytest.raises(InputError, match=r"in another order: \['rate', 'vol', 'spot'\]"):
            as_inputs("predict", x[NAMES[::-1]], n_features=D, input_names=names)
        with pytest.raises(InputError, match="under other names"):
            as_inputs("p", x.rename(columns={"vol": "v"}), n_features=D, input_names=names)
        with pytest.warns(UserWarning, match="X came without column names, .* fitted with"):
            as_inputs("predict", X, n_features=D, input_names=names)
        with pytest.warns(UserWarning, match="X came with column names, .* fitted without"):
            as_inputs("predict", x, n_features=D)

    def test_results_come_back_as_the_kind_that_came_in(self):
        result = np.arange(3.0)
        assert like_input(result, X) is result
        assert like_input(result, pd.DataFrame(X)) is result
        tensor = like_input(result, torch.zeros(1, dtype=torch.float32))
        assert tensor.dtype == torch.float32
        assert like_input(result, torch.zeros(1, dtype=torch.int64)).dtype == torch.float64
        assert like_input(result, torch.zeros(1, device="meta")).device.type == "meta"


class LeastSquares(RegressorMixin, BaseEstimator):
    """The smallest regressor that stands on this boundary."""

    def fit(self, X, y, dydx=None, *, sample_weight=None):
        labels = as_labels(
            "LeastSquares.fit", X, y, dydx, sample_weight=sample_weight, estimator=self
        )
        weight = np.ones(len(labels.x)) if labels.sample_weight is None else labels.sample_weight
        root = np.sqrt(weight)[:, None]
        design = np.column_stack([np.ones(len(labels.x)), labels.x])
        coefficients = np.linalg.lstsq(root * design, root * labels.y, rcond=None)[0]
        self.coef_ = coefficients[:, 0] if labels.single_output else coefficients
        return self

    def predict(self, X):
        check_is_fitted(self)
        x = as_inputs("LeastSquares.predict", X, n_features=self.n_features_in_, estimator=self)
        return like_input(self.coef_[0] + x @ self.coef_[1:], X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class TestScikitLearn:
    def test_check_estimator(self):
        with warnings.catch_warnings():
            # The array API check needs an environment variable that is read at import.
            warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API")
            results = check_estimator(LeastSquares(), on_fail=None, on_skip=None)
        failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
        assert failed == []
        assert sum(r["status"] == "passed" for r in results) > 50

    def test_names_are_recorded_and_compared(self):
        x = pl.DataFrame(X, schema=NAMES)
        model = LeastSquares().fit(x, Y)
        assert model.feature_names_in_.tolist() == NAMES
        with pytest.raises(ValueError, match="same order as they were in fit"):
            model.predict(x[NAMES[::-1]])
        with pytest.raises(ValueError, match="X has 2 features, but LeastSquares is expecting 3"):
            LeastSquares().fit(X, Y).predict(X[:, :2])
