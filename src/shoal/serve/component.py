"""The declaration of this component."""

from shoal.extension import Component

_SERVICES = "shoal.serve.commands.services"
_RUNTIMES = "shoal.serve.runtimes"

SERVE = Component(
    extension="shoal.serve.live.extension:Serve",
    commands={
        "deploy": _SERVICES,
        "scale": _SERVICES,
        "serve": "shoal.serve.commands.serve",
        "services": _SERVICES,
        "undeploy": _SERVICES,
    },
    client={"services": "shoal.serve.methods:Services"},
    runtimes={
        "callable": f"{_RUNTIMES}:CALLABLE",
        "onnx": f"{_RUNTIMES}:ONNX",
        "sklearn": f"{_RUNTIMES}:SKLEARN",
        "torch": f"{_RUNTIMES}:TORCH",
    },
    manifests={"service": "shoal.serve.manifest:SERVICE"},
    subjects={"service": "shoal.serve.commands.subject:find"},
)
