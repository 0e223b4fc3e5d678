"""What other kinds of manifests are made of: the fields, readers and words that they share with jobs."""

from shoal.contract.manifest.conflicts import Conflict, shared_conflicts
from shoal.contract.manifest.document import show_path
from shoal.contract.manifest.quantities import problem, shown
from shoal.contract.manifest.readers import in_order, read_grace, read_secrets
from shoal.contract.manifest.schema import (
    BUNDLE,
    SECRET_NAME,
    Accelerators,
    Duration,
    DurationOrZero,
    EnvName,
    Name,
    Part,
    ResourceRequest,
    Text,
)

__all__ = [
    "BUNDLE", "SECRET_NAME", "Accelerators", "Conflict", "Duration", "DurationOrZero", "EnvName", "Name", "Part",
    "ResourceRequest", "Text", "in_order", "problem", "read_grace", "read_secrets", "shared_conflicts", "show_path",
    "shown",
]  # fmt: skip
