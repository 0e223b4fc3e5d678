"""Parts of which other kinds of manifests are made: the fields, readers and words that they share with jobs."""

from shoal.base.validation import shown
from shoal.contract.manifest.conflicts import Conflict, shared_conflicts
from shoal.contract.manifest.nodes import Nodes, PreferredNodes
from shoal.contract.manifest.path import show_path
from shoal.contract.manifest.quantities import problem
from shoal.contract.manifest.readers import in_order, read_grace
from shoal.contract.manifest.shared import (
    Accelerators,
    Bundle,
    Description,
    Env,
    Files,
    Labels,
    Manifest,
    ResourceRequest,
    Secrets,
    TenantField,
)
from shoal.contract.manifest.values import Duration, DurationOrZero, Part, Text

__all__ = [
    "Accelerators", "Bundle", "Conflict", "Description", "Duration", "DurationOrZero", "Env", "Files", "Labels",
    "Manifest", "Nodes", "Part", "PreferredNodes", "ResourceRequest", "Secrets", "TenantField", "Text", "in_order",
    "problem", "read_grace", "shared_conflicts", "show_path", "shown",
]  # fmt: skip
