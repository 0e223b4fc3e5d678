"""Manifests: what a tenant asks for, read from YAML or JSON, checked whole before anything is stored.

`parse_manifest` and `parse_service` are the doors; a right manifest comes out normalised (`JobManifest`,
`ServiceManifest`), a wrong one as `Invalid` with every problem's field, line and remedy. `import_ffdl` reads the
manifests of FfDL (Middleware'19).
"""

from shoal.contract.manifest.document import MAX_BYTES
from shoal.contract.manifest.ffdl import import_ffdl
from shoal.contract.manifest.parse import is_service, parse_manifest, parse_service, with_line
from shoal.contract.manifest.schema import (
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
from shoal.contract.manifest.service import Model, RouteField, ServiceManifest, Slo, TensorField, service_schema

__all__ = [
    "MAX_BYTES", "Accelerators", "Checkpoint", "Input", "JobManifest", "Metrics", "Model", "Output", "Placement",
    "ResourceRequest", "Restart", "RestartLimits", "RouteField", "ServiceManifest", "Slo", "TensorField",
    "import_ffdl", "is_service", "manifest_schema", "parse_manifest", "parse_service", "service_schema",
    "with_line",
]  # fmt: skip
