"""Tools that an agent of a pipeline may use: a calculator, a lookup in a text collection, sandboxed Python.

A tool is a pure function from the text that an agent wrote to a
:class:`~backend.prompts.tools.base.ToolResult`; it finds its own call in that text. What goes wrong is part
of the result, never an exception. The tools are listed in :mod:`backend.prompts.tools.registry`. Free of
torch.
"""
