"""Runs git safely: clone, commit, push, merge, mirror.

What fails raises a `WorkspaceError` in one line: git is missing or failed, what an argument names does not exist, a
file cannot be read, written or removed, or a path would leave the working tree or enter `.git`. A
`RemoteUnavailableError` means that no answer came after several attempts: a push may have arrived, or may do so
later. `Raises:` says what else a caller can tell apart.
"""
