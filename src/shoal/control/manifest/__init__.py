"""Manifests: what a tenant asks for, read from YAML or JSON, checked whole before anything is stored.

`parse_manifest` is the one door; a right manifest comes out normalised (`JobManifest`), a wrong one as `Invalid` with
every problem's field, line and remedy. `import_ffdl` reads the manifests of FfDL (Middleware'19).
"""

from shoal.control.manifest.document import MAX_BYTES
from shoal.control.manifest.ffdl import import_ffdl
from shoal.control.manifest.parse import parse_manifest
from shoal.control.manifest.schema import (
    Accelerators,
    Checkpoint,
    Input,
    JobManifest,
    Metrics,
    Output,
    Placement,
    ResourceRequest,
    Restart,
    RestartLimits,
    manifest_schema,
)

__all__ = [
    "MAX_BYTES", "Accelerators", "Checkpoint", "Input", "JobManifest", "Metrics", "Output", "Placement",
    "ResourceRequest", "Restart", "RestartLimits", "import_ffdl", "manifest_schema", "parse_manifest",
]  # fmt: skip
