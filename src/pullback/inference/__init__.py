"""Infer once, pull back later, batch by batch."""

from pullback.inference.explain import Explanation
from pullback.inference.first_pass import infer
from pullback.inference.picks import Pick
from pullback.inference.run import Inference

__all__ = ["Explanation", "Inference", "Pick", "infer"]
