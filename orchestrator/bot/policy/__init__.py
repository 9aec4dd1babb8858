"""What may come in, what may go out, and which paths wait for a person."""
