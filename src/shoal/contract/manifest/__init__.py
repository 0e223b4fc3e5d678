"""Manifests: what a tenant asks for, read from YAML or JSON, checked whole before anything is stored.

`parse_manifest` reads jobs; a right manifest comes out normalised (`JobManifest`), a wrong one as `Invalid` with every
problem's field, line and remedy. Extensions offer other kinds of manifests, which `parse_as` reads.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.contract.manifest.arrays import Array, parse_array
    from shoal.contract.manifest.defaults import MemoryDefault
    from shoal.contract.manifest.document import MAX_BYTES
    from shoal.contract.manifest.kinds import Kind, other_kind, other_kinds
    from shoal.contract.manifest.nodes import Nodes
    from shoal.contract.manifest.parse import kind_of, parse_as, parse_manifest, parse_stored, with_line
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

__all__ = [
    "JOB", "MAX_BYTES", "Accelerators", "After", "Array", "Checkpoint", "Input", "JobManifest", "Kind",
    "MemoryDefault", "Metrics", "Nodes", "Output", "Placement", "ResourceRequest", "Restart", "RestartLimits",
    "kind_of", "manifest_schema", "other_kind", "other_kinds", "parse_array", "parse_as", "parse_manifest",
    "parse_stored", "remarks", "with_line",
]  # fmt: skip

# Clients and commands use the quantities, and load no model of a manifest for them.
__getattr__ = on_first_use(globals(), {
    "arrays": "Array parse_array",
    "defaults": "MemoryDefault",
    "document": "MAX_BYTES",
    "kinds": "Kind other_kind other_kinds",
    "nodes": "Nodes",
    "parse": "kind_of parse_as parse_manifest parse_stored with_line",
    "remarks": "remarks",
    "schema": "JOB After Checkpoint Input JobManifest Metrics Output Placement Restart RestartLimits manifest_schema",
    "shared": "Accelerators ResourceRequest",
})  # fmt: skip
