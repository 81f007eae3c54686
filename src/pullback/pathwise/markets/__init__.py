"""pathwise/markets."""
