"""The doctor: what is wrong with an autograd graph, who carries it, and what to do."""

from pullback.doctor.findings import Finding, Findings
from pullback.doctor.session import doctor

__all__ = ["Finding", "Findings", "doctor"]
