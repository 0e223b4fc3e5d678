"""Secrets at rest: encrypted with a key that only the server's home holds, given to ranks by environment only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.base.files import write_whole
from shoal.contract.events import EventKind
from shoal.contract.records import NewEvent
from shoal.core import Clock, NotFound, Reason, ShoalError, Unavailable
from shoal.store import Store

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


_KEY_BYTES = 32


class SecretMissing(ShoalError):
    code = "secret-missing"


class Vault:
    """Encrypts with Fernet (AES-128-CBC and HMAC-SHA256); the key file is made on first use, mode 0600."""

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file
        self._key: bytes | None = None
        self._fernet: Fernet | None = None

    def seal(self, value: str) -> bytes:
        return self._cipher().encrypt(value.encode())

    def open(self, ciphertext: bytes) -> str:
        from cryptography.fernet import InvalidToken

        try:
            return self._cipher().decrypt(ciphertext).decode()
        except InvalidToken:
            raise Unavailable(
                "a stored secret cannot be decrypted", where=str(self._key_file),
                hint="the key file is not the one it was stored with; restore it or set the secret again",
            ) from None  # fmt: skip

    def derive(self, purpose: str) -> str:
        """A secret of 256 bits that follows from the key and the purpose, the same each time."""
        return hmac.new(self._load_key(), purpose.encode(), hashlib.sha256).hexdigest()

    def _cipher(self) -> Fernet:
        if self._fernet is None:
            from cryptography.fernet import Fernet  # heavy: only for homes that use secrets

            self._fernet = Fernet(self._load_key())
        return self._fernet

    def _load_key(self) -> bytes:
        if self._key is None:
            if not self._key_file.exists():
                # On disk before anything is sealed with it, and never half of it.
                write_whole(self._key_file, base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)))
            key = self._key_file.read_bytes()
            if not _is_key(key):
                raise Unavailable(
                    "the key of the secrets is damaged", where=str(self._key_file),
                    hint="put back the file of a backup; without it set the secrets again, after removing this one",
                )  # fmt: skip
            self._key = key
        return self._key


def _is_key(text: bytes) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text)) == _KEY_BYTES
    except ValueError:
        return False


class Secrets:
    """The tenants' secrets: in the store only as the vault sealed them."""

    def __init__(self, store: Store, clock: Clock, vault: Vault) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault

    async def set(self, tenant: str, name: str, value: str, *, actor: str) -> None:
        note = NewEvent(self._clock.now(), EventKind.SECRET_SET, actor, f"secret {name}", tenant=tenant)
        await self._store.put_secret(tenant, name, self._vault.seal(value), note)

    async def delete(self, tenant: str, name: str, *, actor: str) -> None:
        """Raises NotFound."""
        note = NewEvent(self._clock.now(), EventKind.SECRET_DELETED, actor, f"secret {name}", tenant=tenant)
        if not await self._store.delete_secret(tenant, name, note):
            raise NotFound(f"tenant {tenant} has no secret {name}", where=name)

    def missing(self, tenant: str, names: Iterable[str]) -> list[Reason]:
        """A remark on each of these secrets that the tenant does not have."""
        return [
            Reason("secret-missing", f"secret {name} does not exist yet", {"secret": name})
            for name in names
            if self._store.secret(tenant, name) is None
        ]

    def resolve(self, tenant: str, secrets: Mapping[str, str]) -> dict[str, str]:
        """The variables of a manifest's `secrets`, with the values. Raises SecretMissing."""
        found = {}
        for variable, name in secrets.items():
            sealed = self._store.secret(tenant, name)
            if sealed is None:
                raise SecretMissing(
                    f"tenant {tenant} has no secret {name!r}", where=f"secrets.{variable}",
                    hint=f"set it with `shoal secret set {name}` and submit again",
                )  # fmt: skip
            found[variable] = self._vault.open(sealed)
        return found
