"""GitHub, and GitHub Enterprise, as a forge."""
