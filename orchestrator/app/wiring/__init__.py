"""Settings become objects: the only place that names concrete backends."""
