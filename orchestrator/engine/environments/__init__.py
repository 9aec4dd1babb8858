"""The environments in which tools act: files and commands of one folder."""
