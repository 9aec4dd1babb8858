"""One cycle: claim a task, clone, plan and act, verify, propose, finish.

A step passes on what it cannot handle: a `ForgeError` if the forge failed, a `WorkspaceError` if git or the remote
did. `Raises:` says what else a caller can tell apart.
"""
