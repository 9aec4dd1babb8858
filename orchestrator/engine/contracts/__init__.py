"""Contracts: how a model's reply becomes calls, and how the results are sent back."""
