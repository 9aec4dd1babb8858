"""Long-term memory: what models remember, what reviews of a repository taught, and indices of documents."""
