"""The doctor: what is wrong with an autograd graph, who carries it, and what to do."""

from pullback._lazy import make_callable
from pullback.doctor.findings import Finding, Findings
from pullback.doctor.session import doctor
from pullback.doctor.twin import check_twin

__all__ = ["Finding", "Findings", "check_twin", "doctor"]

make_callable(__name__, doctor)
