"""Evidence about the program and about pull requests: verification of claims, and backtests on past changes."""
