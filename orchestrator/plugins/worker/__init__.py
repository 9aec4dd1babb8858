"""A worker: runs cycles for the repositories of a fleet's file, with its health and the receiver of webhooks."""
