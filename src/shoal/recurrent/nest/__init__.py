"""The loop nest of a cell: stages, schedule, transformations, and the interpreter that gives its meaning."""
