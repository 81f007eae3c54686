"""The progress bar: on standard error, when asked for or on a terminal, and nowhere else."""

import sys

import pytest

from pullback.learning.progress import progress_bar


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("show", [False, None])
def test_silent_where_no_terminal_is(show, capsys):
    with progress_bar(show, "adam") as report:
        report(1, 10, {"value": 0.5})

    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("show", [True, None])
def test_shows_both_losses_on_a_terminal(show, capsys):
    with progress_bar(show, "adam") as report:
        report(3, 10, {"value": 0.512, "derivative": 0.0312})
    out, err = capsys.readouterr()

    assert out == ""
    for words in ("adam", "3/10", "value 0.512", "derivative 0.0312"):
        assert words in err


@pytest.mark.usefixtures("terminal")
def test_not_shown_where_it_is_not_wanted(capsys):
    with progress_bar(False, "adam") as report:
        report(3, 10, {"value": 0.5})

    assert capsys.readouterr() == ("", "")


def interrupted():
    with progress_bar(True, "adam") as report:
        report(1, 2, {"value": 1.0})
        raise KeyboardInterrupt


@pytest.mark.usefixtures("terminal")
def test_ended_also_by_an_exception(capsys):
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with progress_bar(True, "again") as report:  # rich allows one live display at a time
        report(1, 2, {"value": 1.0})

    assert "again" in capsys.readouterr().err
