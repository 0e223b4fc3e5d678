"""The declaration of the example: every command reads it, so it imports nothing of what it names."""

from shoal.extension import Component

TABLE = Component(runtimes={"table": "shoal_table:TABLE"})
