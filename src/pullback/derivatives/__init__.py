"""derivatives."""
