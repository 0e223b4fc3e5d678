"""Shoal from Python: `Client` and, for asyncio, `AsyncClient`, with the same methods.

    import shoal

    with shoal.Client() as client:
        job = client.submit({"name": "hello", "command": ["python", "-c", "print('hello')"]})
        print(client.wait(job.id).state)

Both find the server of this machine's home by themselves, outlast its restarts, and raise the errors of
`shoal.core` (`NotFound`, `Invalid`, ...). Answers are the typed values of `shoal.sdk.models`.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.sdk.client import AsyncClient, Client
    from shoal.sdk.locate import NoServer
    from shoal.sdk.models import LogPiece

__all__ = ["AsyncClient", "Client", "LogPiece", "NoServer"]

__getattr__ = on_first_use(globals(), {
    "client": "AsyncClient Client",
    "locate": "NoServer",
    "models": "LogPiece",
})  # fmt: skip
