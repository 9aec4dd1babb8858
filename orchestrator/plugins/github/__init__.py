"""GitHub and GitHub Enterprise servers, as the forge of a repository."""
