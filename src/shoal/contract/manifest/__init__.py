"""Manifests: what a tenant asks for, read from YAML or JSON, checked whole before anything is stored.

`parse_manifest` reads jobs; a right manifest comes out normalised (`JobManifest`), a wrong one as `Invalid` with every
problem's field, line and remedy. Extensions offer other kinds of manifests, which `parse_as` reads. `import_ffdl` reads
the manifests of FfDL (Middleware'19), `import_slurm` the batch scripts of Slurm.
"""

from shoal.contract.manifest.arrays import Array, parse_array
from shoal.contract.manifest.document import MAX_BYTES
from shoal.contract.manifest.ffdl import import_ffdl
from shoal.contract.manifest.kinds import Kind, other_kind, other_kinds
from shoal.contract.manifest.parse import kind_of, parse_as, parse_manifest, with_line
from shoal.contract.manifest.remarks import remarks
from shoal.contract.manifest.schema import (
    JOB,
    After,
    Checkpoint,
    Input,
    JobManifest,
    Metrics,
    Output,
    Placement,
    Restart,
    RestartLimits,
    manifest_schema,
)
from shoal.contract.manifest.shared import Accelerators, ResourceRequest
from shoal.contract.manifest.slurm import import_slurm

__all__ = [
    "JOB", "MAX_BYTES", "Accelerators", "After", "Array", "Checkpoint", "Input", "JobManifest", "Kind", "Metrics",
    "Output", "Placement", "ResourceRequest", "Restart", "RestartLimits", "import_ffdl",
    "import_slurm", "kind_of", "manifest_schema", "other_kind", "other_kinds", "parse_array", "parse_as",
    "parse_manifest", "remarks", "with_line",
]  # fmt: skip
