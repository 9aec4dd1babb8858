"""The words every other room shares: messages, events, errors, tasks, prompts, clock."""
