"""Documents that are no plain text: what of them a model can read."""
