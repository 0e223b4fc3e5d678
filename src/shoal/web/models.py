"""API models of the page's own routes."""

from __future__ import annotations

from pydantic import Field

from shoal.contract.view import Given, View


class SignIn(Given):
    """One of both: a token, or the code of a one-time link."""

    token: str | None = Field(None, min_length=1, max_length=512)
    code: str | None = Field(None, min_length=1, max_length=512)


class SignedInView(View):
    """Who is signed in. `role` is admin, member or viewer; an admin has no tenant. `oidc`: whether the page can send a
    reader to `/v1/web/oidc/start`, to sign in at the identity provider."""

    signed_in: bool
    tenant: str | None = None
    role: str | None = None
    name: str = ""
    expires_at: float | None = None
    oidc: bool = False


class LinkView(View):
    """A link to the page that signs in once. `path` is below the server's address; `url` is the whole of it."""

    code: str
    path: str
    expires_at: float
    url: str = ""


class ShareSample(View):
    """Parts of all accelerators that tenants held at that moment (Unix time): due by weight, and received."""

    at: float
    due: float
    received: float


class SharesView(View):
    """By tenant, oldest first, also from before a restart: the last hour every ten seconds, and up to a day before it
    in means of five minutes."""

    tenants: dict[str, list[ShareSample]] = Field(default_factory=dict)


class WebEventView(View):
    """One committed event, as the page's stream names it."""

    seq: int
    at: float
    kind: str
    tenant: str | None = None
    job_id: str | None = None
    owner_id: str | None = None
    new_state: str | None = None


class ChangesView(View):
    """`data` of the stream's event `changes`: what was committed after `after`, up to `seq`. `events` are the newest;
    `dropped` more are only counted in `kinds`, which counts all by their kind."""

    after: int
    seq: int
    now: float
    dropped: int
    kinds: dict[str, int]
    events: list[WebEventView]
