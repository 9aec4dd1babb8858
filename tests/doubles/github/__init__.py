"""A GitHub double: `with GitHub(folder) as github: ...`. See `server.GitHub`."""
