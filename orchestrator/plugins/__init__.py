"""The plug-ins: optional features, each whole in its own folder. `orchestrator.app.plugins` is the table of them."""
