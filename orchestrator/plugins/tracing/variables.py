"""Reads OpenTelemetry's variables, and opens the sender of traces if they ask for one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.bot.suggestions import install_command
from orchestrator.core.addresses import bracketed
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock
    from orchestrator.plugins.tracing.spans import Tracing

# https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
# https://opentelemetry.io/docs/specs/otel/protocol/exporter/
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOL = "http/protobuf"


def open_tracing(environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Tracing | None:
    """Return the sender of this process's traces, which the caller has to close; None if none are sent.

    A machine may set the variables for other programs. So a value that cannot be used here, or a missing
    extra, is reported in one line, and work continues without traces. If no traces are sent, no part of
    OpenTelemetry is imported.
    """
    variable = _first_set(_ENDPOINTS, environ)
    if variable is None or _is_off(environ):
        return None
    try:
        return _opened(variable, environ, clock, tell)
    except ConfigurationError as error:
        tell(f"no traces are sent: {error}; {_DISABLED}=true switches tracing off")
        return None


def _first_set(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _opened(variable: str, environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Tracing:
    collector = _collector(variable, environ[variable].strip())
    name = _first_set(_PROTOCOLS, environ)
    if name is not None and (protocol := environ[name].strip()) != _PROTOCOL:
        raise ConfigurationError(
            f"{name} is {protocol}: traces are sent by {_PROTOCOL} only, for which collectors listen on port 4318"
        )
    try:
        from orchestrator.plugins.tracing.spans import Tracing

        return Tracing(collector, environ, clock, tell)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{variable} asks for traces, which need the package {error.name}: {install_command('otel')}"
        ) from None
    except (ValueError, RuntimeError) as error:  # raised by the library, which reads some variables on import
        raise ConfigurationError(f"a variable of OpenTelemetry (OTEL_...) makes no sense: {error}") from None


def _is_off(environ: Mapping[str, str]) -> bool:
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    is_disabled = environ.get(_DISABLED, "").strip().lower() == "true"
    return is_disabled or bool(exporters and "otlp" not in exporters)


def _collector(variable: str, url: str) -> str:
    """Return the host and port of an address, without user and path, which may be secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigurationError(f"{variable} is no address of a collector: write it as http://HOST:4318")
    return f"{bracketed(host)}{f':{port}' if port else ''}"
