"""pathwise."""
