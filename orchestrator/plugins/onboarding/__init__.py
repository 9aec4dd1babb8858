"""Sets a repository up: its rules, a workflow with its action, a label, or one pull request with all of it."""
