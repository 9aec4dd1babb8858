"""What is wrong with this machine, this repository and these settings, and what to do."""
