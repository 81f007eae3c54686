"""Every rule has a page, and the example on it gives that finding."""

import contextlib
import re

import pytest
import torch

from pullback.doctor import doctor
from pullback.doctor.explaining import explain
from pullback.doctor.rules import RULES
from pullback.errors import InputError


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_a_page_gives_its_finding(rule, tmp_path):
    page = explain(rule)
    assert page.startswith(f"# {rule}\n")
    assert RULES[rule].sentence in page
    assert "**Fix.**" in page
    source = re.search(r"```python\n(.*?)```", page, re.S)[1]
    file = tmp_path / "example.py"
    file.write_text(source)
    names = {"__name__": "__main__"}
    torch.manual_seed(0)
    with doctor() as findings, contextlib.suppress(RuntimeError):
        exec(compile(source, str(file), "exec"), names)
    found = {f.rule for f in (*findings, *names.get("findings", ()))}
    assert rule in found


def test_an_unknown_rule_names_those_that_there_are():
    with pytest.raises(InputError, match="there are blind-activation, blind-doctor"):
        explain("nonsense")
