"""Claims with their premises asserted; one command a table. See README.md beside this."""
