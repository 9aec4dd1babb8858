"""The story of one cycle: choose, clone, plan and act, propose, finish."""
