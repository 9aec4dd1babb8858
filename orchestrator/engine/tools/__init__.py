"""The tools that a model can call. Each is implemented once; a profile may offer it under another name.

What a tool cannot do raises a `ToolError` or one of its subclasses, whose message the model reads: a path that is
refused or missing, a file that is no text or too large or cannot be written, an argument that does not have its form.
"""
