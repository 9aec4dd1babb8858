"""Traces of runs, in the form of OpenTelemetry."""
