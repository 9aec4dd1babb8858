"""The wire protocols that carry requests to models. Protocol modules do no I/O; `transport` and `listing` do it."""
