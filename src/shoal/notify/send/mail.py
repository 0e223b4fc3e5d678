"""One message over SMTP, with TLS from the start or after STARTTLS, and a password from a file."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import Literal

import aiosmtplib

from shoal.notify.policy.words import subject, text
from shoal.notify.records import Delivery
from shoal.notify.send.outcome import SENT, Outcome

Security = Literal["starttls", "tls", "none"]

_FAREWELL_S = 1.0


@dataclass(frozen=True, slots=True)
class Door:
    """The mail server. `password_file` is read at each message: it may change."""

    host: str
    port: int
    security: Security
    sender: str
    user: str = ""
    password_file: str = ""
    authorities_file: str = ""
    timeout_s: float = 20.0


def message(delivery: Delivery, address: str, sender: str) -> EmailMessage:
    """The same for each try: readers know a repeated one by its Message-ID."""
    made = EmailMessage(policy=SMTP)
    made["Subject"] = subject(delivery.news)
    made["From"], made["To"] = sender, address
    made["Date"] = format_datetime(datetime.fromtimestamp(delivery.created_at, UTC))
    made["Message-ID"] = f"<{delivery.id}@{sender.rpartition('@')[2]}>"
    made["Idempotency-Key"] = delivery.id
    made["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence answers it
    made.set_content(text(delivery))
    return made


async def send(door: Door, address: str, delivery: Delivery) -> Outcome:
    """The mail server has it, or why not."""
    try:
        async with asyncio.timeout(door.timeout_s):
            await _send(door, message(delivery, address, door.sender), address)
    except TimeoutError:
        return Outcome(f"the mail server did not answer within {door.timeout_s:g} s")
    except aiosmtplib.SMTPAuthenticationError as error:
        return Outcome(f"the mail server refuses the name or the password ({error.code})")
    except aiosmtplib.SMTPRecipientsRefused as error:
        code = error.recipients[0].code
        return Outcome(f"the mail server refuses the recipient ({code})", lasting=code >= 500)
    except aiosmtplib.SMTPResponseException as error:
        return Outcome(f"the mail server answers {error.code}", lasting=False)
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        return Outcome(f"the mail server cannot be used: {type(error).__name__}")
    return SENT


async def _send(door: Door, made: EmailMessage, address: str) -> None:
    tls = None if door.security == "none" else await asyncio.to_thread(_authorities, door.authorities_file)
    client = aiosmtplib.SMTP(
        hostname=door.host, port=door.port, use_tls=door.security == "tls", start_tls=False, tls_context=tls,
        timeout=door.timeout_s,
    )  # fmt: skip
    try:
        await client.connect()
        if door.security == "starttls":
            await client.starttls(tls_context=tls)
        if door.user:
            await client.login(door.user, await asyncio.to_thread(_password, door.password_file))
        await client.send_message(made, sender=door.sender, recipients=[address])
        with contextlib.suppress(aiosmtplib.SMTPException, TimeoutError, OSError):  # it has the message
            await client.quit(timeout=_FAREWELL_S)
    finally:
        client.close()


def _authorities(file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file or None)


def _password(file: str) -> str:
    return Path(file).read_text(encoding="utf-8").strip("\r\n")
