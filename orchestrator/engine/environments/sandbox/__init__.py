"""Sandboxes for commands: bubblewrap on Linux, seatbelt on macOS, containers of Docker and Podman."""
