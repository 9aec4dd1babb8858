"""Cycles one after another, and where their tasks come from.

A `ForgeError` means that the forge failed, a `WorkspaceError` that the remote cannot be reached or refused a change.
`Raises:` says what else a caller can tell apart.
"""
