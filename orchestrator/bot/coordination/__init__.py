"""Claims, leases and records on hidden refs of the remote."""
