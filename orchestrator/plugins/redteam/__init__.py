"""Attacks on the user's own configuration, offline: a model that obeys them, and what stopped each."""
