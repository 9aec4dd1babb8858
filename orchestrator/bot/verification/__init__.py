"""The runs of a repository's tests that the host makes, and what they prove."""
