"""Talks with the model: conversations about a folder, a clone or a task, and single questions."""
