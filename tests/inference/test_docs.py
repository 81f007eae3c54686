"""The page runs as it stands, block after block."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "no_retain_graph.md"


def test_its_python_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
