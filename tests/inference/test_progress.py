"""A bar on a terminal, for long runs; otherwise nothing is printed."""

import io
import sys

import pytest
import torch

import pullback.inference as pb
from pullback.inference import progress


def run_all(**options):
    run = pb.infer(torch.square, torch.randn(20, 3), batch_size=8, **options)
    run.pull(None, torch.ones(20, 3))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_is_printed_without_a_terminal(capfd):
    run_all()
    run_all(progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("patience", "shown"), [(60.0, False), (-1.0, True)])
def test_a_terminal_gets_a_bar_once_it_takes_long(patience, shown, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    run_all()
    assert ("infer" in terminal.getvalue()) is shown
    assert ("run.pull" in terminal.getvalue()) is shown


def test_false_shows_nothing_on_a_terminal_either(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    run_all(progress=False)
    assert terminal.getvalue() == ""


def test_a_callable_hears_of_every_batch():
    heard = []
    run_all(progress=lambda done, total: heard.append((done, total)))
    # Eight and eight and four; then even parts of the twenty rows.
    assert heard == [(8, 20), (16, 20), (20, 20), (7, 20), (14, 20), (20, 20)]
