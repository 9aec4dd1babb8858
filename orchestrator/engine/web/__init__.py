"""The way to the public web: pages and search engines, and the refusal of every address that is not public."""
