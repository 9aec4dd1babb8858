"""The loop between a model and its tools, and the limits on it."""
