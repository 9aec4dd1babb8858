"""The tools that a model can call. Each is implemented once; a profile may offer it under another name."""
