"""Access to the public web: pages and search engines. Every address that is not public is refused."""
