"""What docs/labels.md shows is so, and the package is callable as its function is."""

import doctest
from pathlib import Path

import torch

import pullback.pathwise
from pullback.pathwise import pathwise

DOCS = Path(__file__).parents[2] / "docs" / "labels.md"


def test_the_guide_runs():
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(str(DOCS), module_relative=False, optionflags=flags)
    assert tried > 10
    assert failed == 0


def test_the_package_is_called_as_the_function():
    x, noise = torch.randn(8, 2), torch.randn(8, 2)
    arguments = (lambda s, z: (s * z).sum(1), x, noise)
    labels = pullback.pathwise(*arguments, check_labels=False)
    assert torch.equal(labels.dydx, pathwise(*arguments, check_labels=False).dydx)
