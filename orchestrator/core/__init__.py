"""What every package shares: messages, events, errors, tasks, prompts and the clock."""
