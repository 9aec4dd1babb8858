"""Verifies the claims that a pull request makes about itself."""
