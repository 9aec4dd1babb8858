"""Configuration becomes objects: the only place that names concrete backends."""
