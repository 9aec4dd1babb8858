"""Which wire protocol carries a request to a model. A protocol module does no I/O; `http` does."""
