"""The declaration of what the command line brings beside its own commands: importers, and what joins two components."""

from shoal.extension import Component

COMMAND_LINE = Component(
    importers={"ffdl": "shoal.cli.manifests:ffdl", "slurm": "shoal.cli.manifests:slurm"},
    simulators={"scheduler": "shoal.cli.serving:scheduled"},
)
