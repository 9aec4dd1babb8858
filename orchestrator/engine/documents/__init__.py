"""Documents that are not plain text: extraction of the text that a model can read."""
