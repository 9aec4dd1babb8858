"""What a model can do. Each tool exists once; a profile may show it under another name."""
