"""What may come in, run, and go out."""
