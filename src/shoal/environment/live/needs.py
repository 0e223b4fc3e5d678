"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.environment.live.tables import Made, Repository


class Keeping:
    """What the routes need of the extension."""

    repository: Repository

    async def remove(self, made: Iterable[Made], actor: str) -> list[str]:
        raise NotImplementedError
