"""What an extension's routes need of the server: who asks."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from shoal.contract.principal import Principal


async def get_principal(request: Request) -> Principal:
    """Whose token the request carries. Raises Unauthenticated, Overloaded beyond the token's rate, and Unavailable
    while the server starts or leaves."""
    return cast("Principal", await request.app.state.principal(request))


Who = Annotated[Principal, Depends(get_principal)]
