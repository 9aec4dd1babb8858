"""What a session may do: permission levels, command rules, and secrets that are redacted."""
