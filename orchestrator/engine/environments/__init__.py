"""Where tools act: files and commands of one folder, here or elsewhere."""
