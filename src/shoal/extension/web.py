"""What an extension's routes need of the server: the principal of a request."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from shoal.contract.principal import Principal


async def get_principal(request: Request) -> Principal:
    """Whose token the request carries. Raises Unauthenticated, Overloaded beyond the token's rate, and Unavailable
    while the server starts or leaves."""
    return cast("Principal", await request.app.state.principal(request))


Who = Annotated[Principal, Depends(get_principal)]


async def get_asker(request: Request, principal: Who) -> Principal:
    """As `get_principal`, for a request whose answer is expensive to work out: these have a rate of their own."""
    request.app.state.question(request, principal)
    return principal


Asker = Annotated[Principal, Depends(get_asker)]
