"""One cycle: claim a task, clone, plan and act, verify, propose, finish."""
