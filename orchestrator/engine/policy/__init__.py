"""The policy of a session: permission levels, command rules, and the redaction of secrets."""
