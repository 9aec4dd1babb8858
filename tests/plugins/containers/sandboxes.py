"""Sandboxes of containers, for tests with a real engine."""

from __future__ import annotations

import functools
import os
import sys

from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.plugins.containers.sandbox import ContainerSandbox, find_image
from tests.doubles.engines import IMAGE, engine, ensure_image


@functools.cache
def container_sandbox(name: str = IMAGE, options: SandboxOptions | None = None) -> ContainerSandbox:
    """A sandbox of an image, which is made if it is not there; a folder of Python can be read in it."""
    found = engine()
    ensure_image(found, name)
    known_engine, image = find_image(f"{found}:{name}", os.environ)
    return ContainerSandbox(known_engine, image, options or with_python(), os.environ)


def with_python(**options: object) -> SandboxOptions:
    """Options with which commands can run this Python."""
    folders = tuple(dict.fromkeys((sys.prefix, sys.base_prefix)))
    readable = () if sys.base_prefix == "/usr" else folders
    return SandboxOptions(readable=readable, **options)  # type: ignore[arg-type]
