"""Long-term memory: what is remembered, where it is stored, and how it is found again."""
