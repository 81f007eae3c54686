"""A pytest fixture: `pytest_plugins = ["pullback.doctor.pytest_plugin"]` in conftest.py.

Not an entry point: pytest would then import torch in every project of the environment.
"""

from collections.abc import Iterator

import pytest

from pullback.doctor.findings import Findings
from pullback.doctor.session import doctor


@pytest.fixture
def graph_doctor() -> Iterator[Findings]:
    """Watch the test; fail it when it ends with a finding graver than "info"."""
    with doctor(raise_on="warning") as findings:
        yield findings
