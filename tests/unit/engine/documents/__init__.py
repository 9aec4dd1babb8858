"""Tests of documents that are no plain text."""
