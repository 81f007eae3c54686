"""The page and the README's section run as they stand, block after block."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks_of(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", ["no_retain_graph.md", "_readme_infer.md"])
def test_its_python_runs(name, capsys):
    path = DOCS / name
    if not path.exists():
        pytest.skip("the section has moved into the README, whose own test runs it")
    blocks = blocks_of(path)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)
    if name == "_readme_infer.md":
        assert namespace["gradient"].shape == (32, 3, 8, 8)
        assert namespace["picks"][0].gradients.shape == (1, 3, 8, 8)
        assert "200 rows of one shape" in capsys.readouterr().out
