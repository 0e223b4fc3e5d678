"""`client.web`: the link that signs in to the page, and the shares of tenants over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.contract.calls import Call, reads
from shoal.contract.methods import Namespace, single
from shoal.web.models import LinkView, SharesView

if TYPE_CHECKING:
    import httpx

_PATH = "/v1/web/link"


def link() -> Call[LinkView]:
    """A link to the page that signs in once, with the client's own rights."""

    def read(response: httpx.Response) -> LinkView:
        found = reads(LinkView)(response)
        return found.model_copy(update={"url": str(response.request.url).removesuffix(_PATH) + found.path})

    return Call("POST", _PATH, read, repeatable=False)


def shares(*, tenant: str | None = None) -> Call[SharesView]:
    """What a tenant was due and received of the accelerators, of a day at most; an admin who names none gets those with
    the greatest shares."""
    return Call("GET", "/v1/web/shares", reads(SharesView), {"tenant": tenant})


class WebMethods(Namespace):
    """The methods of `client.web`."""

    link = single(link)
    shares = single(shares)
