"""Every test starts from the same seeds and leaves torch as it found it."""

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def _seeds_and_defaults():
    torch.manual_seed(0)
    np.random.seed(0)
    threads = torch.get_num_threads()
    dtype = torch.get_default_dtype()
    torch.set_num_threads(1)
    yield
    assert torch.get_default_dtype() == dtype, "a test left another default dtype behind"
    assert torch.is_grad_enabled(), "a test left grad mode off"
    torch.set_num_threads(threads)
