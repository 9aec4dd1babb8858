"""Implementation of `init`: sets a repository up by files, by a workflow, or by a first pull request."""
