"""The page: everything in it, nothing outside it, whatever the rows are."""

import html.parser
import re

import numpy as np
import pytest
from tests.reports.models import known, rows

from pullback.errors import FileError, InputError, MissingExtraError
from pullback.reports import Profile, evaluate, render_page, write_page

VOID = {"meta", "wbr", "image", "path", "use", "rect", "br", "link", "circle", "line", "polyline"}


class Outline(html.parser.HTMLParser):
    """Checks that elements are nested; collects ids, links, labels and what is visible."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.references, self.drawings, self.scopes = [], [], [], [], 0
        self.words = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.references += [found[key] for key in ("href", "src") if key in found]
        self.drawings += [found] if tag == "svg" else []
        self.scopes += "scope" in found
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def page_of(model, x, *truths, **more):
    return render_page([evaluate(model, x, *truths)], title="A <report>", **more)


def test_page_is_whole_and_alone():
    model, x = known(3, 2, shift=0.1, slope=1.1), rows(200, 3)
    page = page_of(model, x, *model.exact(x))
    outline = Outline(page)
    assert all(ref.startswith(("#", "data:image/png;base64,")) for ref in outline.references)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert "<script" not in page
    assert len(page) < 2_000_000
    sections = [ref[1:] for ref in outline.references if ref.startswith("#")]
    assert set(sections) <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(outline.ids)


def test_every_drawing_is_described_and_every_table_has_headers():
    model, x = known(3, 2), rows(100, 3)
    outline = Outline(page_of(model, x, *model.exact(x)))
    assert len(outline.drawings) == 2 + 2 + 4 + 1 + 2  # predictions, residuals, learning, distance
    assert all(d["role"] == "img" and len(d["aria-label"]) > 20 for d in outline.drawings)
    assert all("viewbox" in d for d in outline.drawings)
    assert outline.scopes > 20


def test_names_are_escaped():
    model, x = known(), rows(50)
    page = page_of(model, x, *model.exact(x))
    assert "spot<A>" not in page
    assert "dprice/<wbr>dspot&lt;A&gt;" in page
    assert "<title>A &lt;report&gt;</title>" in page


def test_names_are_no_mathematics():
    x = rows(30)
    pair = [evaluate(known(), x, *known().exact(x), name=name) for name in ("_old", "a$_{$b$")]
    words = "".join(Outline(render_page(pair, title="t", profiles=[Profile("$x", x[:, 0])])).words)
    for name in ("_old", "a$_{$b$", "$x"):
        assert words.count(name) >= 2


def test_figures_take_the_ink_of_the_page():
    """Dark mode: nothing in a drawing is black on its own, and no white sheet lies behind."""
    model, x = known(), rows(50)
    page = page_of(model, x, *model.exact(x))
    assert "currentColor" in page
    for colour in ("#010203", "#000000", "#ffffff"):
        assert colour not in page
    assert "prefers-color-scheme: dark" in page


def test_many_rows_make_a_small_page():
    model, x = known(8, shift=0.1, slope=1.1), rows(60_000, 8)
    page = page_of(model, x, *model.exact(x))
    assert len(page) < 2_000_000
    assert "60,000" in page


def test_many_derivatives_are_capped_and_said():
    model, x = known(16), rows(60, 16)
    y, dydx = model.exact(x)
    dydx[:, :, :12] += rows(60, 12, seed=1)[:, None]
    page = page_of(model, x, y, dydx)
    assert page.count("<h3>dprice/<wbr>d") == 8
    assert "Of 16 derivatives 8 are drawn: those that vary" in page
    assert page.count('<th scope="row">dprice/<wbr>d') == 16


def test_two_models_stand_side_by_side():
    x = rows(100)
    one, two = known(shift=0.4, slope=1.2), known(shift=0.1, slope=1.1)
    truths = one.exact(x)
    pair = [evaluate(one, x, *truths, name="values only"), evaluate(two, x, *truths, name="both")]
    level = Profile("a sum", x.sum(1))
    page = render_page(pair, title="t", profiles=[level, Profile("a sum", x.sum(1), input=1)])
    outline = Outline(page)
    assert "Side by side" in outline.words
    for heading in ("price, values only", "price, both", "dprice/<wbr>dvol&amp;B, both"):
        assert f"<h3>{heading}</h3>" in page
    assert "4 times smaller for “both” than for “values only”" in " ".join(outline.words)


@pytest.mark.parametrize("case", ["one row", "no derivative", "gaps", "constant", "far away"])
def test_unusual_rows_still_make_a_page(case):
    model = known(shift=0.1)
    x = rows(1 if case == "one row" else 40)
    if case == "constant":
        model.weights[:], model.bend = 0.0, 0.0
    if case == "far away":
        x += 100.0
    y, dydx = model.exact(x)
    if case == "gaps":
        y[:] = np.nan
        dydx[::2] = np.nan
        dydx[:, :, 1] = np.nan
    truths = (y,) if case == "no derivative" else (y, dydx)
    words = " ".join(Outline(page_of(model, x, *truths)).words).replace("\N{NO-BREAK SPACE}", " ")
    expected = {
        "one row": "one row: R² has no meaning",
        "no derivative": "hold no derivatives",
        "gaps": "No true value of price is known",
        "constant": "constant: R² has no meaning",
        "far away": "40 of 40 test rows (100 %) lie outside",
    }
    assert expected[case] in words


def test_page_appears_whole_or_not_at_all(tmp_path):
    model, x = known(), rows(20)
    evaluation = evaluate(model, x, *model.exact(x))
    path = tmp_path / "report.html"
    write_page(path, [evaluation], title="t")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileError, match="there is no folder"):
        write_page(tmp_path / "no" / "report.html", [evaluation], title="t")


def test_other_rows_are_refused():
    model = known()
    pair = [evaluate(model, x, *model.exact(x)) for x in (rows(20), rows(20, seed=1))]
    with pytest.raises(InputError, match="over the same rows"):
        render_page(pair, title="t")
    with pytest.raises(InputError, match="at least one"):
        render_page([], title="t")


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    model, x = known(), rows(20)
    evaluation = evaluate(model, x, *model.exact(x))
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pullback\[plot\]'"):
        render_page([evaluation], title="t")


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    model, x = known(), rows(20)
    page_of(model, x, *model.exact(x))
    assert dict(matplotlib.rcParams) == before
