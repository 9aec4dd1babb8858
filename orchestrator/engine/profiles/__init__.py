"""Profiles: the tools, the prompt and the defaults for a family of models."""
