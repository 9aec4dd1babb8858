"""Runs a repository's tests on the host, and judges what the results prove."""
