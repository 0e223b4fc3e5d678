"""Planes over HTTP: whose tokens count where, and what a client of a plane sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from shoal.control.door import Door
from shoal.control.extensions.loaded import Chosen
from shoal.control.server import put_admin_token
from shoal.control.tokens import new_token

from .world import World
from .world import play as play_world


def play(
    folder: Path, scene: Callable[[httpx.AsyncClient, str], Awaitable[None]], *, beside: Sequence[Chosen] = (),
    **settings: float | str,
) -> None:  # fmt: skip
    """`scene` gets a client of the shared server and its admin's token."""

    async def whole(world: World) -> None:
        token = new_token(None)
        await put_admin_token(world.store, token, "test", world.clock.now())
        door = Door(world.plane)
        await door.open()
        await world.plane.put_tenant("red", actor="admin")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door.app), base_url="http://shoal") as client:
            await scene(client, token)
        door.close()

    play_world(folder, whole, beside=beside, **settings)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def made(client: httpx.AsyncClient, token: str) -> dict[str, str]:
    answer = await client.post("/v1/planes", json={"name": "vision", "tenant": "red"}, headers=bearer(token))
    assert answer.status_code == 201, answer.text
    found: dict[str, str] = answer.json()
    return found


def test_a_plane_answers_as_a_whole_server_below_its_path(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        assert (plane["url"], plane["path"]) == ("http://shoal/planes/vision", "/planes/vision")
        own = bearer(plane["token"])
        status = (await client.get(f"{plane['path']}/v1/status", headers=own)).json()
        assert status["engine"] == "shared"
        job = {"name": "job", "command": ["train"], "resources": {"accelerators": "a100:1"}}
        sent = await client.post(f"{plane['path']}/v1/jobs", json=job, headers=own)
        assert sent.status_code == 201, sent.text
        listed = (await client.get(f"{plane['path']}/v1/jobs", headers=own)).json()["jobs"]
        assert [one["id"] for one in listed] == [sent.json()["id"]]
        assert (await client.get("/v1/jobs", headers=bearer(token))).json()["jobs"] == []
        assert (await client.get(f"{plane['path']}/healthz")).status_code == 200

    play(tmp_path, scene)


def test_tokens_count_where_they_were_made(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        assert (await client.get("/planes/vision/v1/jobs", headers=bearer(token))).status_code == 401
        assert (await client.get("/v1/jobs", headers=bearer(plane["token"]))).status_code == 401
        assert (await client.get("/v1/planes", headers=bearer(plane["token"]))).status_code == 401
        assert (await client.get("/planes/vision/v1/jobs")).status_code == 401

    play(tmp_path, scene)


def test_only_the_shared_servers_admin_manages_planes(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        await made(client, token)
        tenant = await client.post("/v1/tenants/red/tokens", json={"label": "x"}, headers=bearer(token))
        assert tenant.status_code == 201, tenant.text
        own = bearer(tenant.json()["token"])
        for method, path in (("GET", "/v1/planes"), ("GET", "/v1/planes/vision"), ("DELETE", "/v1/planes/vision")):
            assert (await client.request(method, path, headers=own)).status_code == 403
        refused = await client.post("/v1/planes", json={"name": "other", "tenant": "red"}, headers=own)
        assert refused.status_code == 403

    play(tmp_path, scene)


def test_a_suspended_plane_says_so_and_an_unknown_one_is_not_found(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        suspended = await client.post("/v1/planes/vision/suspend", headers=bearer(token))
        assert suspended.json()["state"] == "SUSPENDED"
        answer = await client.get("/planes/vision/v1/jobs", headers=bearer(plane["token"]))
        assert answer.status_code == 503
        assert "plane vision is suspended" in answer.json()["error"]["what"]
        assert (await client.post("/v1/planes/vision/resume", headers=bearer(token))).json()["state"] == "ACTIVE"
        assert (await client.get("/planes/vision/v1/jobs", headers=bearer(plane["token"]))).status_code == 200
        assert (await client.get("/planes/other/v1/jobs", headers=bearer(plane["token"]))).status_code == 404
        assert (await client.delete("/v1/planes/vision", headers=bearer(token))).status_code == 204
        assert (await client.get("/v1/planes", headers=bearer(token))).json() == {"planes": []}

    play(tmp_path, scene)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        for name in ("../x", "a/b", "", "A", "-a", "x" * 41):
            answer = await client.post("/v1/planes", json={"name": name, "tenant": "red"}, headers=bearer(token))
            assert answer.status_code == 422, name

    play(tmp_path, scene)


def test_a_plane_that_is_asked_too_often_says_when_to_ask_again_and_others_answer(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        other = await client.post("/v1/planes", json={"name": "other", "tenant": "red"}, headers=bearer(token))
        own = bearer(plane["token"])
        answers = [await client.get("/planes/vision/v1/jobs", headers=own) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[-1].headers["retry-after"] == "2"
        assert answers[-1].json()["error"]["what"] == "plane vision may be asked 0.5 times a second"
        assert (await client.get("/planes/other/v1/jobs", headers=bearer(other.json()["token"]))).status_code == 200
        await asyncio.sleep(2.5)
        assert (await client.get("/planes/vision/v1/jobs", headers=own)).status_code == 200

    play(tmp_path, scene, requests_per_s=0.5, burst=3)


def test_a_plane_answers_so_many_requests_at_a_time(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own = bearer(plane["token"])
        told = (await client.get("/planes/vision/v1/events?limit=1000", headers=own)).json()["events"]
        rest = f"/planes/vision/v1/events?after={told[-1]['seq']}&wait_s=5"
        held = [asyncio.ensure_future(client.get(rest, headers=own)) for _ in range(2)]
        await asyncio.sleep(0.5)
        busy = await client.get("/planes/vision/v1/jobs", headers=own)
        assert busy.status_code == 429
        assert busy.headers["retry-after"] == "5"
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert (await client.get("/planes/vision/v1/jobs", headers=own)).status_code == 200

    play(tmp_path, scene, requests_at_once=2)


def test_a_plane_goes_on_from_its_backup_here_or_as_another_plane(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own, admin = bearer(plane["token"]), bearer(token)
        secret = {"value": "hunter2"}
        path = "/planes/vision/v1"
        assert (await client.put(f"{path}/secrets/key?tenant=default", json=secret, headers=own)).status_code == 204
        kept = await client.get("/v1/planes/vision/backup", headers=admin)
        assert kept.status_code == 200
        assert (await client.get("/v1/planes/vision/backup", headers=own)).status_code == 401
        assert (await client.delete(f"{path}/secrets/key?tenant=default", headers=own)).status_code == 204
        back = await client.put("/v1/planes/vision/backup", content=kept.content, headers=admin)
        assert back.status_code == 200, back.text
        found = (await client.get(f"{path}/secrets?tenant=default", headers=own)).json()["secrets"]
        assert [one["name"] for one in found] == ["key"]

        copy = await client.post("/v1/planes/copy/import?tenant=red", content=kept.content, headers=admin)
        assert copy.status_code == 201, copy.text
        for each in (own, bearer(copy.json()["token"])):
            found = (await client.get("/planes/copy/v1/secrets?tenant=default", headers=each)).json()["secrets"]
            assert [one["name"] for one in found] == ["key"]
        bad = await client.put("/v1/planes/vision/backup", content=b"no backup", headers=admin)
        assert bad.status_code == 422
        assert "this is no whole backup" in bad.json()["error"]["what"]
        assert (await client.get(f"{path}/jobs", headers=own)).status_code == 200

    play(tmp_path, scene)


def test_a_plane_whose_database_is_damaged_says_so_and_others_go_on(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        admin, own = bearer(token), bearer((await made(client, token))["token"])
        other = await client.post("/v1/planes", json={"name": "other", "tenant": "red"}, headers=admin)
        kept = await client.get("/v1/planes/vision/backup", headers=admin)
        await asyncio.sleep(600)  # both are asleep
        shown = (await client.get("/v1/planes/vision", headers=admin)).json()
        (tmp_path / "planes" / shown["id"] / "shoal.db").write_text("damaged " * 1000)
        refused = await client.get("/planes/vision/v1/jobs", headers=own)
        assert refused.status_code == 503
        assert "plane vision cannot be opened: the database is damaged" in refused.json()["error"]["what"]
        assert "shoal plane restore vision FILE" in refused.json()["error"]["hint"]
        assert str(tmp_path) not in refused.text
        assert (await client.get("/planes/other/v1/jobs", headers=bearer(other.json()["token"]))).status_code == 200
        back = await client.put("/v1/planes/vision/backup", content=kept.content, headers=admin)
        assert back.status_code == 200, back.text
        assert (await client.get("/planes/vision/v1/jobs", headers=own)).status_code == 200

    play(tmp_path, scene)


def test_a_viewer_of_a_plane_looks_and_changes_nothing(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own, path = bearer(plane["token"]), "/planes/vision/v1"
        given = {}
        for role in ("member", "viewer"):
            answer = await client.post(f"{path}/tenants/default/tokens", json={"role": role}, headers=own)
            assert answer.status_code == 201, answer.text
            given[role] = bearer(answer.json()["token"])
        job = {"name": "job", "command": ["train"], "resources": {"accelerators": "a100:1"}}
        sent = await client.post(f"{path}/jobs", json=job, headers=given["member"])
        assert sent.status_code == 201
        for each in given.values():
            seen = await client.get(f"{path}/jobs/{sent.json()['id']}", headers=each)
            assert seen.status_code == 200
        cancel = f"{path}/jobs/{sent.json()['id']}/cancel"
        for method, url, body in (("POST", f"{path}/jobs", job), ("POST", cancel, None),
                                  ("PUT", f"{path}/secrets/key", {"value": "x"})):  # fmt: skip
            refused = await client.request(method, url, json=body, headers=given["viewer"])
            assert refused.status_code == 403, url
            assert "viewer" in refused.json()["error"]["what"]
        assert (await client.post(cancel, headers=given["member"])).status_code < 300
        wrong = await client.post(f"{path}/tenants/default/tokens", json={"role": "owner"}, headers=own)
        assert wrong.status_code == 422

    play(tmp_path, scene)


def test_the_shared_admin_sees_what_a_plane_used_and_who_did_what_but_nothing_that_is_its_own(tmp_path: Path) -> None:
    canary = "canary-7f3a"

    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane, admin = await made(client, token), bearer(token)
        own = bearer(plane["token"])
        await client.post(f"{plane['path']}/v1/tenants", json={"name": "detection"}, headers=own)
        secret = await client.put(
            f"{plane['path']}/v1/secrets/key?tenant=detection", json={"value": canary}, headers=own
        )
        assert secret.status_code < 300, secret.text
        job = {
            "name": "fit", "command": ["train", canary], "env": {"WHAT": canary}, "tenant": "detection", "ranks": 2,
            "labels": {"about": canary}, "secrets": {"KEY": "key"},
            "resources": {"accelerators": "a100:2", "cpus": 4, "memory": "8GiB"},
        }  # fmt: skip
        sent = await client.post(f"{plane['path']}/v1/jobs", json=job, headers=own)
        assert sent.status_code == 201, sent.text
        await asyncio.sleep(1800)  # it runs for a quarter of an hour
        used = (await client.get("/v1/planes/vision/usage", headers=admin)).json()
        assert (used["plane"], used["tenant"], used["jobs"]) == ("vision", "red", 1)
        assert abs(used["accelerator_hours"]["a100"] - 1) < 0.01
        assert abs(used["core_hours"] - 2) < 0.01
        assert abs(used["memory_gib_hours"] - 4) < 0.01
        later = (await client.get("/v1/planes/vision/usage?since=1e12", headers=admin)).json()
        assert (later["jobs"], later["accelerator_hours"]) == (0, {})
        whole = (await client.get("/v1/planes/vision/audit", headers=admin)).json()
        kinds = [(one["actor"], one["kind"]) for one in whole["entries"]]
        assert ("admin", "job.submitted") in kinds
        assert ("admin", "tenant.created") in kinds
        assert {actor for actor, _ in kinds} == {"admin"}
        assert whole["next"] is None
        assert [one["job_id"] for one in whole["entries"] if one["kind"] == "job.submitted"] == [sent.json()["id"]]
        paged, after = [], 0
        while after is not None:
            page = (await client.get(f"/v1/planes/vision/audit?limit=2&after={after}", headers=admin)).json()
            paged += page["entries"]
            after = page["next"]
        assert paged == whole["entries"]
        # Through every door of the shared server that says something of it.
        for path in ("/v1/planes/vision", "/v1/planes", "/v1/planes/vision/usage", "/v1/planes/vision/audit",
                     "/v1/jobs?owned=true", "/v1/events", "/v1/nodes", "/v1/status", "/metrics"):  # fmt: skip
            answer = await client.get(path, headers=admin)
            assert answer.status_code == 200, (path, answer.text)
            assert canary not in answer.text, path
        for path in ("/v1/planes/vision/usage", "/v1/planes/vision/audit"):
            assert (await client.get(path, headers=own)).status_code == 401
        # Also of one that is suspended.
        await client.post("/v1/planes/vision/suspend", headers=admin)
        again = (await client.get("/v1/planes/vision/audit", headers=admin)).json()
        assert again["entries"][: len(whole["entries"])] == whole["entries"]

    play(tmp_path, scene)


def test_a_plane_shows_the_machines_of_its_jobs_by_names_of_its_own_and_leaks_no_other(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        own, path = bearer(plane["token"]), plane["path"]

        async def submit(name: str, count: int, ranks: int = 1) -> str:
            job = {"name": name, "command": ["train"], "resources": {"accelerators": f"a100:{count}"}, "ranks": ranks}
            sent = await client.post(f"{path}/v1/jobs", json=job, headers=own)
            assert sent.status_code == 201, sent.text
            return str(sent.json()["id"])

        # Two machines of four devices: each of the first two takes most of one, and the gang the rest of both.
        first, second = await submit("first", 3), await submit("second", 3)
        over = await submit("over", 1, ranks=2)
        await asyncio.sleep(60)
        (pool,) = (await client.get(f"{path}/v1/nodes", headers=own)).json()["nodes"]
        on = {machine["name"]: set(machine["job_ids"]) for machine in pool["machines"]}
        assert sorted(map(sorted, on.values())) == sorted([sorted([first, over]), sorted([second, over])])
        assert all(name.startswith("node-") for name in on)
        shown = (await client.get(f"{path}/v1/jobs/{over}", headers=own)).json()
        assert {rank["node"] for rank in shown["attempts"][0]["ranks"]} == set(on)
        # Whatever may be read of the plane: no machine's own name, no address, no folder of the shared server.
        spec = (await client.get(f"{path}/openapi.json", headers=own)).json()
        read = 0
        for route, operations in spec["paths"].items():
            if "get" not in operations or "watch" in route or "{digest}" in route:
                continue
            known = route.replace("{job}", over).replace("{ref}", over).replace("{job_id}", over)
            answer = await client.get(path + known.replace("{name}", "default").replace("{rank}", "0"), headers=own)
            read += answer.status_code == 200
            for secret in ('"n0"', '"n1"', " n0", " n1", str(tmp_path)):
                assert secret not in answer.text, (route, secret)
        assert read >= 10

    play(tmp_path, scene)


def test_a_plane_answers_at_a_host_name_of_its_own(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane = await made(client, token)
        assert plane["url"] == "http://vision.planes.example"
        own = bearer(plane["token"])
        job = {"name": "job", "command": ["train"], "resources": {"accelerators": "a100:1"}}
        sent = await client.post(f"{plane['url']}/v1/jobs", json=job, headers=own)
        assert sent.status_code == 201, sent.text
        listed = (await client.get("http://vision.planes.example:7070/v1/jobs", headers=own)).json()["jobs"]
        assert [one["id"] for one in listed] == [sent.json()["id"]]
        assert (await client.get("/planes/vision/v1/jobs", headers=own)).json()["jobs"] == listed
        # Nothing of the shared server is there, and its tokens count for nothing; nor the other way round.
        assert (await client.get(f"{plane['url']}/v1/jobs", headers=bearer(token))).status_code == 401
        assert (await client.get(f"{plane['url']}/v1/planes", headers=own)).status_code == 404
        assert (await client.get("/v1/jobs", headers=own)).status_code == 401
        assert (await client.get("/v1/jobs", headers=bearer(token))).json()["jobs"] == []
        for host in ("speech.planes.example", "a.vision.planes.example"):
            missing = await client.get(f"http://{host}/v1/jobs", headers=own)
            assert missing.status_code == 404, host
            assert "there is no plane" in missing.text
        assert (await client.get("http://planes.example/v1/jobs", headers=bearer(token))).status_code == 200

    play(tmp_path, scene, domain="planes.example")


def test_requests_without_a_valid_token_wake_no_plane_and_take_nothing_from_its_members(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane, admin = await made(client, token), bearer(token)
        own, path = bearer(plane["token"]), "/planes/vision"
        strangers = [{}, bearer("shoal_admin_unknown"), {"authorization": "Basic x"}]

        async def awake() -> bool:
            return bool((await client.get("/v1/planes/vision", headers=admin)).json()["awake"])

        for _ in range(2):  # a plane that was not opened yet, and one that sleeps
            assert not await awake()
            for stranger in strangers:
                refused = await client.get(f"{path}/v1/jobs", headers=stranger)
                assert refused.status_code == 401, refused.text
            probes = [await client.get(f"{path}/{name}") for name in ("healthz", "readyz")]
            assert [one.text for one in probes] == ["ok\n", "ready\n"]
            assert (await client.post(f"{path}/healthz")).status_code == 401
            assert not await awake()
            assert (await client.get(f"{path}/v1/jobs", headers=own)).status_code == 200
            assert await awake()
            # What nobody vouches for does not keep it awake either.
            for _ in range(70):
                await asyncio.sleep(5.0)
                assert (await client.get(f"{path}/v1/jobs")).status_code == 401
        flood = [await client.get(f"{path}/v1/jobs", headers=strangers[at % 3]) for at in range(200)]
        assert {one.status_code for one in flood} == {401, 429}
        assert flood[-1].status_code == 429
        assert int(flood[-1].headers["retry-after"]) >= 1
        members = [await client.get(f"{path}/v1/jobs", headers=own) for _ in range(20)]
        assert {one.status_code for one in members} == {200}
        # The plane is awake now: the same holds.
        flood = [await client.get(f"{path}/v1/jobs", headers=strangers[at % 3]) for at in range(200)]
        assert {one.status_code for one in flood} <= {401, 429}
        assert (await client.get(f"{path}/v1/jobs", headers=own)).status_code == 200

    play(tmp_path, scene, requests_per_s=0.001, burst=23, sleep_after_s=300.0)


@pytest.mark.parametrize("state", ["awake", "asleep", "suspended"])
def test_a_lost_token_of_a_planes_admin_is_replaced_by_the_shared_servers_admin(tmp_path: Path, state: str) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane, admin = await made(client, token), bearer(token)
        first = bearer(plane["token"])
        jobs = f"{plane['path']}/v1/jobs"
        assert (await client.get(jobs, headers=first)).status_code == 200
        if state == "asleep":
            await asyncio.sleep(600)
        elif state == "suspended":
            await client.post("/v1/planes/vision/suspend", headers=admin)
        assert (await client.post("/v1/planes/vision/token", headers=first)).status_code == 401
        made_now = await client.post("/v1/planes/vision/token", headers=admin)
        assert made_now.status_code == 201, made_now.text
        assert made_now.json()["url"] == plane["url"]
        if state == "suspended":
            await client.post("/v1/planes/vision/resume", headers=admin)
        for each in (bearer(made_now.json()["token"]), first):
            assert (await client.get(jobs, headers=each)).status_code == 200
        assert (await client.post("/v1/planes/other/token", headers=admin)).status_code == 404
        kinds = [one["kind"] for one in (await client.get("/v1/events?limit=1000", headers=admin)).json()["events"]]
        assert kinds.count("plane.token-created") == 1

    play(tmp_path, scene)


def test_a_token_that_was_revoked_wakes_no_plane(tmp_path: Path) -> None:
    async def scene(client: httpx.AsyncClient, token: str) -> None:
        plane, admin = await made(client, token), bearer(token)
        own, path = bearer(plane["token"]), plane["path"]
        given = (await client.post(f"{path}/v1/tenants/default/tokens", json={}, headers=own)).json()
        gone = await client.delete(f"{path}/v1/tokens/{given['id']}", headers=own)
        assert gone.status_code == 204, gone.text
        await asyncio.sleep(600)
        assert (await client.get(f"{path}/v1/jobs", headers=bearer(given["token"]))).status_code == 401
        assert not (await client.get("/v1/planes/vision", headers=admin)).json()["awake"]

    play(tmp_path, scene)
