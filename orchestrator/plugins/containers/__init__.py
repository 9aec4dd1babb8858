"""Commands in a container of an image: the engines, their images, and the sandbox."""
