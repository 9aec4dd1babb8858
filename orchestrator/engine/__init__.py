"""The agent loop as a library, independent of git, forges, journals and the program's configuration."""
