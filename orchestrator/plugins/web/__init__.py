"""The web tools: pages of public addresses, and search engines."""
