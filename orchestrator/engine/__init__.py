"""The agent loop as a library: it knows no git, no forge, no journal and no configuration."""
