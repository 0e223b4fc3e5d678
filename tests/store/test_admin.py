"""Tenants, tokens and secrets."""

import hashlib
from dataclasses import replace

import pytest

from shoal.contract.records import TokenRecord
from shoal.core import Conflict, Invalid, NotFound, PriorityClass, Quota, Sandbox

HASH = hashlib.sha256(b"shoal-secret-token").hexdigest()


async def test_a_tenant_is_made_and_changed(store, make):
    quota = Quota(accelerators=8, by_type=(("a100", 4), ("t4", 2)), cpu_milli=None, memory_bytes=1 << 45, queued_jobs=0)
    red = make.tenant(
        "red", weight=2.5, quota=quota, max_priority_class=PriorityClass.BEST_EFFORT, sandbox=Sandbox.USER
    )
    await store.put_tenant(red, make.event("tenant.created", tenant="red"))
    await store.put_tenant(make.tenant("blue"), make.event("tenant.created", tenant="blue"))
    assert store.tenants() == [make.tenant("blue"), red]
    changed = replace(red, weight=1.0, quota=Quota())
    await store.put_tenant(changed, make.event("tenant.changed", tenant="red"))
    assert store.tenants() == [make.tenant("blue"), changed]
    assert [event.kind for event in store.events(tenant="red")] == ["tenant.created", "tenant.changed"]


async def test_a_token_is_kept_by_its_hash_only_and_revoked_once(store, make):
    await store.put_tenant(make.tenant("red"), make.event())
    token = TokenRecord("t1", "red", HASH, "laptop", 100.0)
    admin = TokenRecord("t0", None, "0" * 64, "first", 99.0)
    await store.put_token(token, make.event("token.created", tenant="red"))
    await store.put_token(admin, make.event("token.created"))
    assert store.tokens() == [admin, token]
    with pytest.raises(Invalid, match="SHA-256 only"):
        await store.put_token(replace(token, id="t2", token_sha256="shoal-secret-token"), make.event())
    with pytest.raises(Conflict):
        await store.put_token(replace(token, id="t2"), make.event())
    with pytest.raises(Conflict):
        await store.put_token(TokenRecord("t3", "nobody", "1" * 64, "", 1.0), make.event())

    await store.revoke_token("t1", make.event("token.revoked", at=200.0))
    await store.revoke_token("t1", make.event("token.revoked", at=300.0))
    assert store.tokens()[1].revoked_at == 200.0
    assert [event.kind for event in store.events()].count("token.revoked") == 1
    with pytest.raises(NotFound, match="no token 't9'"):
        await store.revoke_token("t9", make.event())


async def test_secrets_are_replaced_listed_and_deleted(store, make):
    await store.put_tenant(make.tenant("red"), make.event())
    await store.put_secret("red", "b", b"\x00\xffone", make.event(at=1.0))
    await store.put_secret("red", "b", b"two", make.event(at=2.0))
    await store.put_secret("red", "a", b"", make.event(at=3.0))
    assert store.secret("red", "b") == b"two"
    assert store.secret("red", "c") is None
    assert store.secret_names("red") == [("a", 3.0), ("b", 2.0)]
    assert store.secret_names("blue") == []
    seq = store.last_seq()
    assert await store.delete_secret("red", "c", make.event()) is False
    assert store.last_seq() == seq
    assert await store.delete_secret("red", "b", make.event("secret.deleted")) is True
    assert store.secret("red", "b") is None
    assert store.last_seq() == seq + 1
    with pytest.raises(Conflict):
        await store.put_secret("nobody", "a", b"x", make.event())
