"""Which tools a model is shown, under which prompt, with which defaults."""
