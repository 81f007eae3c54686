"""The examples of the doctor's documentation run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_runs(source, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(source)
    exec(compile(source, str(file), "exec"), {"__name__": "__main__"})


def test_there_are_examples():
    assert len(EXAMPLES) == 2
