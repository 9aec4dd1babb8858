"""Claims, leases and records on hidden references of the remote."""
