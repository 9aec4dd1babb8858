"""Claims, leases and records on hidden refs of the remote.

What fails raises a `WorkspaceError`, as in `orchestrator.bot.git`. A `ClaimLostError` means that another worker or a
person moved the claim, a `PushRejectedError` that a ref is not where it was expected, or that the server refused it.
"""
