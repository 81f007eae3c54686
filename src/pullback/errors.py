"""Every error and warning that pullback raises.

::

    PullbackError
    ├── InputError (ValueError)             an argument is not what the call can use
    │   ├── ShapeError                      a shape does not fit [N, *D], [N, K] or [N, K, *D]
    │   └── DtypeError (TypeError)          an integer tensor where a derivative is asked for
    ├── GradientError (RuntimeError)        only running the function shows it
    │   ├── UnconnectedInputError           the output does not depend on the input
    │   ├── CoupledRowsError                row i of the output depends on row j of the input
    │   └── ReplayError                     a recomputed row is not the row that was recorded
    ├── LabelError (ValueError)             derivative labels contradict the value labels
    ├── ActivationError (ValueError)        an activation that can't be used, or its derivative
    ├── GraphFaultError (RuntimeError)      the doctor found what it was told to raise on
    ├── FileError (ValueError)
    │   ├── TableError                      a data file, a row or a cell of it
    │   └── ModelFileError                  a saved model, or a checkpoint
    ├── MissingExtraError (ImportError)     an optional dependency is not installed
    └── NativeBuildError (RuntimeError)     the native step could not be compiled

    PullbackWarning (UserWarning)
    ├── CollapseWarning                     training ended as a constant and was restarted
    ├── PiecewiseLinearWarning              a derivative loss cannot train this activation
    └── LabelWarning                        derivative labels look inconsistent with the values
"""


class PullbackError(Exception):
    """Base of every error raised by pullback."""


class InputError(PullbackError, ValueError):
    """An argument is not what the call can use."""


class ShapeError(InputError):
    """A shape does not fit the alphabet: N rows, D inputs, K outputs."""


class DtypeError(InputError, TypeError):
    """A dtype that cannot carry a derivative where one is asked for."""


class GradientError(PullbackError, RuntimeError):
    """A derivative could not be taken; only running the function shows it."""


class UnconnectedInputError(GradientError):
    """The output does not depend on an input whose derivative was asked for."""


class CoupledRowsError(GradientError):
    """Row i of the output depends on row j of the input."""


class ReplayError(GradientError):
    """Rows that were inferred can no longer be recomputed as they were recorded."""


class LabelError(PullbackError, ValueError):
    """Derivative labels contradict the value labels."""


class ActivationError(PullbackError, ValueError):
    """An activation is not elementwise, or its given derivative is wrong."""


class GraphFaultError(PullbackError, RuntimeError):
    """The doctor found a fault as grave as it was told to raise on."""


class FileError(PullbackError, ValueError):
    """A file could not be used."""


class TableError(FileError):
    """A data file, or a row or a cell of it, could not be used."""


class ModelFileError(FileError):
    """A saved model or a checkpoint could not be used."""


class MissingExtraError(PullbackError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


class NativeBuildError(PullbackError, RuntimeError):
    """The native training step could not be compiled."""


class PullbackWarning(UserWarning):
    """Base of every warning given by pullback."""


class CollapseWarning(PullbackWarning):
    """Training ended as a constant and was restarted."""


class PiecewiseLinearWarning(PullbackWarning):
    """A derivative loss cannot train this activation: its second derivative is zero."""


class LabelWarning(PullbackWarning):
    """Derivative labels look inconsistent with the value labels."""
