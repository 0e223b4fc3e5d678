"""`client.web`: the link that signs in to the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.contract.calls import Call, reads
from shoal.contract.methods import Namespace, single
from shoal.web.models import LinkView

if TYPE_CHECKING:
    import httpx

_PATH = "/v1/web/link"


def link() -> Call[LinkView]:
    """A link to the page that signs in once, with the client's own rights."""

    def read(response: httpx.Response) -> LinkView:
        found = reads(LinkView)(response)
        return found.model_copy(update={"url": str(response.request.url).removesuffix(_PATH) + found.path})

    return Call("POST", _PATH, read, repeatable=False)


class WebMethods(Namespace):
    """The methods of `client.web`."""

    link = single(link)
