import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.reports.models import known, rows

from pullback.errors import ShapeError
from pullback.reports import comparison, comparison_table, evaluate, metrics_table, summary


@pytest.mark.parametrize("outputs", [1, 2])
def test_errors_in_closed_form(outputs):
    model, x = known(3, outputs, shift=0.25, slope=1.5), rows(400, 3)
    y, dydx = model.exact(x)
    evaluation = evaluate(model, x, y, dydx)
    for k, metric in enumerate(evaluation.metrics.values):
        assert_allclose(metric.rmse, 0.25, rtol=1e-12)
        assert_allclose(metric.r2, 1 - (0.25 / y[:, k].std()) ** 2, rtol=1e-12)
    for metric, truth in zip(
        evaluation.metrics.derivatives, dydx.reshape(len(x), -1).T, strict=True
    ):
        assert_allclose(metric.rmse, 0.5 * np.sqrt(np.mean(truth**2)), rtol=1e-12)
        assert metric.right_sign == 1.0
    assert all(d.cosine == pytest.approx(1.0) for d in evaluation.metrics.directions)


def test_short_and_long_shapes_are_the_same():
    model, x = known(shift=0.5, slope=1.1), rows(30)
    y, dydx = model.exact(x)
    long, short = evaluate(model, x, y, dydx), evaluate(model, x, y[:, 0], dydx[:, 0])
    assert long.metrics == short.metrics


def test_error_of_rows_has_the_metrics_as_its_mean():
    model, x = known(3, 2, shift=0.25, slope=1.5), rows(400, 3)
    y, dydx = model.exact(x)
    dydx[::3, 0, 1] = np.nan
    evaluation = evaluate(model, x, y, dydx)
    metrics = evaluation.metrics
    for derivatives, quantities in ((False, metrics.values), (True, metrics.derivatives)):
        weights = np.array([metric.rows for metric in quantities])
        squares = np.array([metric.scaled_rmse for metric in quantities]) ** 2
        counts = np.isfinite(y).sum(1) if not derivatives else np.isfinite(dydx).sum((1, 2))
        found = evaluation.scaled_errors(derivatives=derivatives) ** 2
        assert_allclose((found * counts).sum(), (weights * squares).sum(), rtol=1e-9)


def test_without_derivatives_only_values_are_compared():
    model, x = known(), rows(20)
    evaluation = evaluate(model, x, model.exact(x)[0])
    assert evaluation.metrics.derivatives == ()
    assert evaluation.predicted_dydx is None
    assert "hold no derivatives" in " ".join(summary(evaluation))


def test_json_holds_everything_but_rows():
    model, x = known(3, 2, shift=0.1), rows(50, 3)
    record = json.loads(json.dumps(evaluate(model, x, *model.exact(x)).to_json(), allow_nan=False))
    assert record["rows"] == 50
    assert record["columns"]["units"] == {"price": "USD"}
    assert [m["name"] for m in record["metrics"]["values"]] == ["price", "fee"]
    assert len(record["metrics"]["derivatives"]) == 6
    assert record["metrics"]["values"][0]["rmse"] == pytest.approx(0.1)
    assert record["training"]["optimizer"] == "adam"
    assert record["training"]["parameters"] == {"hidden": "4, 4"}
    assert record["training"]["train"]["derivative"] == [2.0, 0.2, 0.02]
    assert set(record["training"]["versions"]) == {"pullback", "torch", "numpy", "Python"}


def test_sentences_say_what_the_figures_say():
    model, x = known(shift=0.25), rows(400)
    x[:100] += 9.0  # far outside
    evaluation = evaluate(model, x, *model.exact(x))
    text = " ".join(summary(evaluation))
    assert "RMSE) of price is 0.250 USD" in text
    assert "mean cosine of 1.000000" in text
    assert f"{int(evaluation.outside.sum())} of 400 test rows" in text
    assert "the error of price is 1.0 times as large" in text


def test_comparison_says_the_factor():
    x = rows(100)
    one, two = known(shift=0.4, slope=1.2), known(shift=0.1, slope=1.3)
    truths = one.exact(x)
    pair = [evaluate(one, x, *truths, name="old"), evaluate(two, x, *truths, name="new")]
    first, second, *_ = comparison(pair)
    assert first.startswith("The error of price is 4 times smaller for “new” than for “old”")
    assert "RMSE 0.100 against 0.400" in first
    assert "mean error of the derivatives is 1.5 times larger" in second


def test_a_perfect_model_is_not_divided_by():
    x, model = rows(50), known()
    pair = [evaluate(model, x, *model.exact(x), name=name) for name in ("old", "new")]
    assert not any("times" in sentence for sentence in comparison(pair))


def test_tables_for_a_terminal(capsys):
    from rich.console import Console

    x = rows(100)
    model = known(shift=0.4)
    evaluation = evaluate(model, x, *model.exact(x), name="mine")
    console = Console(width=120)
    console.print(metrics_table(evaluation))
    console.print(comparison_table([evaluation]))
    shown = capsys.readouterr().out
    for words in ("mine: 100 rows", "dprice/dspot<A>", "0.4", "constant: R²", "40", "1.5"):
        assert words in shown


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y, d: (x[:, :1], y, d), r"X of shape \[N, 2\], got \(9, 1\)"),
        (lambda x, y, d: (x, y[:5], d), r"y of shape \(9, 1\) or \(9,\), got \(5, 1\)"),
        (lambda x, y, d: (x, y, d[:, :, :1]), r"dydx of shape \(9, 1, 2\) or \(9, 2\), got"),
    ],
)
def test_shapes_are_named(change, words):
    model, x = known(), rows(9)
    with pytest.raises(ShapeError, match=words):
        evaluate(model, *change(x, *model.exact(x)))
