"""The settings of the web page."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from shoal.contract.manifest.values import Period
from shoal.extension import Section
from shoal.web.rights import Right, read_rights, write_rights

Rights = Annotated[
    tuple[Right, ...], BeforeValidator(read_rights), PlainSerializer(write_rights, return_type=str, when_used="json")
]


class OidcSettings(BaseModel):
    """Sign-in by an OpenID Connect provider, where an issuer is named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str = Field("", description="the provider's address, such as https://login.example.org/realms/team")
    client_id: str = Field("", description="how the provider knows this server")
    client_secret_file: str = Field("", description="a file with the client's secret; none: a public client")
    scopes: str = Field("openid profile email", description="what is asked of the provider")
    claim: str = Field("groups", description="the claim that lists a person's groups")
    rights: Rights = Field((), description="what groups may do: ml-team=red:member,ops=admin; the first that fits")
    url: str = Field("", description="the server's address as browsers have it, if that is not what they ask for")


class WebSection(Section):
    """The web page, which is on unless it is turned off."""

    enabled: bool = True
    hosts: str = Field(
        "", description="names by which browsers reach this server beside its own, such as that of a proxy; with commas"
    )
    lifetime: Period = Field(7 * 86400.0, description="how long a sign-in to the page lasts at most")
    idle: Period = Field(86400.0, description="how long a sign-in lasts that is not used")
    streams: int = Field(256, ge=1, le=1 << 16, description="pages of one token that are kept live at once")

    oidc: OidcSettings = Field(
        default_factory=lambda: OidcSettings.model_validate({}),
        description="sign-in by OpenID Connect: issuer, client_id, client_secret_file, scopes, claim, rights, url",
    )

    @property
    def names(self) -> frozenset[str]:
        """Of hosts, in lower case."""
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())
