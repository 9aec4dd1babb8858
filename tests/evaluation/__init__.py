"""Measures the program on data: nothing here is a test, and pytest collects nothing from it."""
