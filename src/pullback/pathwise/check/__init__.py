"""Are pathwise derivatives those of the mean? The payoff can be run again, so it is asked."""

from pullback.pathwise.check.checking import PathwiseReport, check_pathwise, check_simulation

__all__ = ["PathwiseReport", "check_pathwise", "check_simulation"]
