"""The settings of news, and the section of a job's manifest."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from shoal.base import extras
from shoal.contract.manifest.values import Duration, Period
from shoal.core import Invalid
from shoal.extension import Section
from shoal.notify.records import OF_JOBS, Topic

if TYPE_CHECKING:
    from shoal.notify.send.mail import Door


class NotifySection(Section):
    """News of jobs, services, budgets and nodes, to mail, webhooks and Slack."""

    enabled: bool = True
    inward: str = Field("", description="networks of this site that webhooks may be in, such as 10.0.0.0/8 [none]")
    mail_domains: str = Field("", description="mail goes to addresses of these domains only [all]")
    smtp_host: str = Field("", description="the mail server; without one no mail is sent")
    smtp_port: int = Field(587, ge=1, le=65535, description="its port")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="TLS after STARTTLS, from the start, or none"
    )
    smtp_user: str = Field("", description="the name to log in with [no login]")
    smtp_password_file: str = Field("", description="a file with the password")
    authorities_file: str = Field("", description="certificates that receivers' are checked by [the system's]")
    sender: str = Field("shoal@localhost", description="whom mail is from")
    timeout: Period = Field(10.0, le=60, description="a receiver that takes longer is tried again later")
    retry: Period = Field(
        2.0, le=600, description="so long after its first failure it is tried again, then twice as long each time"
    )
    attempts: int = Field(15, ge=1, le=100, description="a delivery is tried so often, then given up")
    at_once: int = Field(64, ge=1, le=1000, description="deliveries that are under way at a time; of a plane 8 at most")
    keep: Period = Field(7 * 86_400.0, description="deliveries that are over are listed for so long")

    def door(self) -> Door | None:
        """Raises Invalid for settings that contradict each other, or give a password away."""
        if not self.smtp_host:
            return None
        from shoal.notify.send.addresses import check_mail_address

        try:
            from shoal.notify.send.mail import Door
        except ModuleNotFoundError as error:
            raise Invalid("mail needs a library", where="notify.smtp_host", hint=extras.install("notify")) from error
        check_mail_address(self.sender, "notify.sender")
        if self.smtp_user and not self.smtp_password_file:
            raise Invalid("the password lacks", where="notify.smtp_password_file", hint="name a file that has it")
        if self.smtp_user and not Path(self.smtp_password_file).is_file():
            raise Invalid("there is no such file", where=f"notify.smtp_password_file: {self.smtp_password_file}")
        if self.smtp_user and self.smtp_security == "none" and not _is_here(self.smtp_host):
            raise Invalid(
                "the password would be sent in the clear", where="notify.smtp_security", hint="use starttls or tls"
            )
        return Door(
            self.smtp_host, self.smtp_port, self.smtp_security, self.sender, self.smtp_user, self.smtp_password_file,
            self.authorities_file, 2 * self.timeout,
        )  # fmt: skip


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class NotifyJob(BaseModel):
    """A job's section `extensions: {notify: ...}`: who is told of it, and of what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: tuple[str, ...] = Field(min_length=1, max_length=16, description="mail addresses, or names of subscriptions")
    on: tuple[Topic, ...] = Field((Topic.ENDED,), min_length=1, max_length=16, description="of what")
    waits: Duration | None = Field(None, description="how long it must wait for `waits` to be told")
    array_tasks: bool = Field(False, description="of a job array: tell of each task")

    @field_validator("to")
    @classmethod
    def _receivers(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        from shoal.notify.models import NAME_PATTERN
        from shoal.notify.send.addresses import check_mail_address

        for one in given:
            if "@" in one:
                try:
                    check_mail_address(one, "to")
                except Invalid as error:
                    raise ValueError(error.what) from None
            elif not NAME_PATTERN.fullmatch(one):
                raise ValueError(f"{one!r} is neither a mail address nor the name of a subscription")
        return given

    @model_validator(mode="after")
    def _of_a_job(self) -> Self:
        if wrong := sorted(one.value for one in self.on if one not in OF_JOBS):
            known = ", ".join(sorted(one.value for one in OF_JOBS))
            raise ValueError(f"a job is not told of {', '.join(wrong)}: known are {known}")
        if (Topic.WAITS in self.on) != (self.waits is not None):
            raise ValueError("`on: [waits]` and `waits: 30m` need each other")
        return self
