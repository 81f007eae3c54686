"""The README's Python runs, block after block, in one namespace."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_its_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    namespace = {}

    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)

    said = capsys.readouterr().out
    assert said.startswith("broyden: 60 rows")
    assert "200 rows of one shape" in said
    assert namespace["gradient"].shape == (32, 3, 8, 8)
    assert namespace["picks"][0].gradients.shape == (1, 3, 8, 8)
    assert namespace["priced"].dydx.shape == (4_096, 1, 2)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_it_shows_the_two_commands(command):
    assert command in README.read_text(encoding="utf-8")
