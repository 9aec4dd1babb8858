"""Where tasks come from and pull requests go: GitHub, or a folder that plays it."""
