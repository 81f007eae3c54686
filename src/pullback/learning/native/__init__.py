"""An epoch of training a small network in one call to compiled code; optional."""
