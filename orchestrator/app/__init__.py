"""The program: what a person starts."""
