"""Parts that all commands share: their context, how errors look, exit codes, tables, and files that they write.

`command` has no heavy imports; `output` loads Rich when something is shown.
"""
