"""Other agent programs in the place of our own loop, with the same guarantees."""
