"""Reports of what was done in a period."""
