"""Optional: the conversation of `chat` as an agent for editors."""
