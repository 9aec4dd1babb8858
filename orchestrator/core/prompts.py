"""Loads and renders the Markdown files of `prompts/`, which contain every word that a model reads."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).resolve().parent.parent


def prompts_folder() -> Path:
    """Return the folder of the prompts: inside an installed package, or beside it in a source tree."""
    installed = _PACKAGE / "_prompts"
    return installed if installed.is_dir() else _PACKAGE.parent / "prompts"


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(prompts_folder()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  the reader is a model, not a browser
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, /, **values: Any) -> str:
    """Render the template `prompts/<name>.md`.

    Raises:
        ConfigurationError: the file does not exist, or a variable that it uses was not given.
    """
    import jinja2

    try:
        return _environment().get_template(f"{name}.md").render(values).strip()
    except jinja2.TemplateError as error:
        message = f"prompt {name}.md cannot be used: {error}"
        raise ConfigurationError(message) from error
