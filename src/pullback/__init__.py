"""pullback: derivatives with respect to inputs, in PyTorch."""

__version__ = "0.1.0"
