"""The progress bar: on standard error, when asked for or on a terminal, and nowhere else."""

import sys

import pytest

from pullback.learning.progress import progress_bar

TERMS = {"value": 0.512, "derivative": 0.0312}


def run(show, *, terminal=False, error=None):
    """A run of one report, as if standard error were a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "200")
        with progress_bar(show, "adam") as report:
            report(3, 10, TERMS)
            if error:
                raise error


@pytest.mark.parametrize("show", [False, None])
def test_silent_where_no_terminal_is(show, capsys):
    run(show)

    assert capsys.readouterr() == ("", "")


def test_silent_on_a_terminal_where_it_is_not_wanted(capsys):
    run(False, terminal=True)

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("show", [True, None])
def test_shows_both_losses_on_a_terminal(show, capsys):
    run(show, terminal=True)
    out, err = capsys.readouterr()

    assert out == ""
    for words in ("adam", "3/10", "value 0.512", "derivative 0.0312"):
        assert words in err


def test_ended_also_by_an_exception(capsys):
    with pytest.raises(KeyboardInterrupt):
        run(True, terminal=True, error=KeyboardInterrupt())
    capsys.readouterr()
    run(True, terminal=True)  # rich allows one live display at a time

    assert "adam" in capsys.readouterr().err
