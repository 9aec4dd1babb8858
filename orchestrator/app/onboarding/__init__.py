"""What `init` does: it sets a repository up for the program, by files, by a workflow, or by a first pull request."""
