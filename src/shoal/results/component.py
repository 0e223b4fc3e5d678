"""The declaration of this component."""

from shoal.extension import Component

RESULTS = Component(
    extension="shoal.results.live.extension:Results",
    commands={
        "artifacts": "shoal.results.commands.artifacts",
        "compare": "shoal.results.commands.compare",
        "tensorboard": "shoal.results.commands.tensorboard",
        "upload": "shoal.results.commands.upload",
    },
    client={"artifacts": "shoal.results.methods:Artifacts"},
)
