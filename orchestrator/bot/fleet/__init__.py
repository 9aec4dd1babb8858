"""A fleet: many repositories, several machines and one queue, on a durable workflow engine."""
