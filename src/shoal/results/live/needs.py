"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.extension import Server
    from shoal.results.live.artifact_store import ArtifactStore
    from shoal.results.live.uploads import Uploads


class Keeping:
    """What the routes need of the extension."""

    server: Server
    artifact_store: ArtifactStore
    uploads: Uploads
