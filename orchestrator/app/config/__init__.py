"""The configuration of a run: the settings, the origin of each value, and the keys in the environment."""
