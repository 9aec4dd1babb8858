"""The client of MCP servers: connections, pinned definitions, and their tools for a session."""
