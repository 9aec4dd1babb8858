"""The clone: how it is made, what changed in it, and how that is committed and pushed."""
