"""The calendar over HTTP: tenants see and change their own, and the admin plans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import httpx

from shoal.contract.events import EventKind
from shoal.contract.principal import Callers, Principal, TokenRole, User
from shoal.contract.records import NewEvent, TokenRecord
from shoal.control.door import Door
from shoal.control.server import put_admin_token
from shoal.control.tokens import new_token, new_token_id, token_digest
from shoal.extension import Extension
from shoal.sweep.live.extension import Sweeps

from .kit import Planned, play

Ask = Callable[..., Awaitable[tuple[int, Any]]]
JOB = {"name": "nightly", "command": ["train"]}
CRON = {"name": "nightly", "at": "0 3 * * *", "zone": "Europe/Berlin", "manifest": JOB}
COURSE = {
    "name": "course", "tenant": "ada", "begin": "2023-12-01T14:00", "end": "+2h", "accelerators": 2,
    "because": "deep learning 101",
}  # fmt: skip


def ask(folder: Path, scene: Callable[[Planned, Ask], Awaitable[None]]) -> None:
    async def whole(world: Planned) -> None:
        assert world.plane is not None
        assert world.store is not None
        tokens = {"admin": new_token(None)}
        now = world.clock.now()
        await put_admin_token(world.store, tokens["admin"], "test", now)
        for name, tenant, role in (
            ("ada", "ada", "member"),
            ("bob", "bob", "member"),
            ("viewer", "ada", "viewer"),
            ("ann", "ada", "member"),
            ("ben", "ada", "member"),
            ("lead", "ada", "member"),
        ):
            tokens[name] = new_token(tenant)
            record = TokenRecord(
                new_token_id(), tenant, token_digest(tokens[name]), "test", now, read_only=role == TokenRole.VIEWER
            )
            await world.store.put_token(record, NewEvent(now, EventKind.TOKEN_CREATED, "test"))
            if name in ("ann", "ben", "lead"):
                People.users[record.id] = User(name, 1000 + len(name) + ord(name[0]))
        door = Door(world.plane)
        await door.open()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door.app), base_url="http://shoal") as client:

            async def send(who: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
                auth = {"authorization": f"Bearer {tokens[who]}", **headers}
                answer = await client.request(method, path, json=body, headers=auth)
                return answer.status_code, answer.json() if answer.content else None

            await scene(world, send)
        door.close()

    play(folder, whole, others=(Sweeps, People))


class People(Extension):
    """Users of the tenant `ada`, by their tokens, who have only their own; `lead` leads them."""

    name: ClassVar[str] = "people"
    users: ClassVar[dict[str, User]] = {}

    def answers(self) -> Mapping[type, object]:
        return {Callers: self}

    async def local(self, uid: int) -> Principal:
        raise NotImplementedError

    async def holder(self, principal: Principal) -> Principal:
        user = self.users.get(principal.token_id)
        return principal if user is None else replace(principal, user=user, own_only=user.name != "lead")


def test_a_cron_job_is_its_makers_to_change(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        assert (await send("ann", "POST", "/v1/crons", CRON))[0] == 201
        other = {**CRON, "at": "0 5 * * *", "replace": True, "manifest": {**JOB, "command": ["steal"]}}
        status, said = await send("ben", "POST", "/v1/crons", other)
        assert (status, said["error"]["what"]) == (403, "cron job nightly is of the user ann")
        for method, path in (("GET", ""), ("POST", "/suspend"), ("POST", "/resume"), ("POST", "/run"), ("DELETE", "")):
            assert (await send("ben", method, f"/v1/crons/nightly{path}"))[0] == 403, path
        assert [one["at"] for one in (await send("ben", "GET", "/v1/crons"))[1]["crons"]] == ["0 3 * * *"]
        for who in ("ann", "lead", "admin", "ada"):
            query = "?tenant=ada" if who == "admin" else ""
            assert (await send(who, "POST", f"/v1/crons/nightly/suspend{query}"))[0] == 200, who
            assert (await send(who, "GET", f"/v1/crons/nightly{query}"))[1]["manifest"]["command"] == ["train"]
        assert (await send("ann", "POST", "/v1/crons", {**other, "manifest": JOB}))[0] == 200
        assert (await send("ada", "POST", "/v1/crons", {**CRON, "name": "of-all"}))[0] == 201
        assert (await send("ben", "DELETE", "/v1/crons/of-all"))[0] == 204
        assert (await send("lead", "DELETE", "/v1/crons/nightly"))[0] == 204

    ask(tmp_path, scene)


def test_a_cron_job_is_its_tenants_alone(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        status, made = await send("ada", "POST", "/v1/crons", CRON)
        assert (status, made["tenant"], made["next_at"]) == (201, "ada", 1700013600.0)
        assert (await send("ada", "POST", "/v1/crons", CRON))[0] == 200
        assert (await send("ada", "POST", "/v1/crons", {**CRON, "at": "0 4 * * *"}))[0] == 409
        assert (await send("bob", "GET", "/v1/crons"))[1] == {"crons": []}
        for method, path in (("GET", ""), ("POST", "/suspend"), ("POST", "/resume"), ("POST", "/run"), ("DELETE", "")):
            assert (await send("bob", method, f"/v1/crons/nightly{path}"))[0] == 404
            assert (await send("bob", method, f"/v1/crons/nightly{path}?tenant=ada"))[0] == 403
        assert (await send("bob", "POST", "/v1/crons?tenant=ada", CRON))[0] == 403
        named = {**CRON, "manifest": {**JOB, "tenant": "ada"}}
        assert (await send("bob", "POST", "/v1/crons", named))[0] == 403
        assert (await send("viewer", "POST", "/v1/crons/nightly/run"))[0] == 403
        assert (await send("viewer", "GET", "/v1/crons/nightly"))[1]["manifest"]["name"] == "nightly"
        keyed = {"idempotency-key": "once"}
        first = await send("ada", "POST", "/v1/crons/nightly/run", **keyed)
        again = await send("ada", "POST", "/v1/crons/nightly/run", **keyed)
        assert (first[0], again[0], first[1]["job"]) == (201, 200, again[1]["job"])
        assert (await send("ada", "DELETE", "/v1/crons/nightly"))[0] == 204
        assert (await send("ada", "GET", "/v1/crons/nightly"))[0] == 404

    ask(tmp_path, scene)


def test_bad_input_is_told_in_words(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        for change in (
            {"at": "x"}, {"zone": "Mars"}, {"name": "../etc"}, {"manifest": {"name": "a"}}, {"overlap": "x"},
            {"more": 1}, {"at": "0 3 * * *\n"}, {"manifest": {**JOB, "command": []}},
        ):  # fmt: skip
            status, told = await send("ada", "POST", "/v1/crons", {**CRON, **change})
            if change != {"at": "0 3 * * *\n"}:
                assert status == 422, (change, told)
        for change in (
            {"begin": "tomorrow"}, {"end": "2023-12-01T13:00"}, {"nodes": ["n9"]}, {"accelerators": 0},
            {"zone": "Mars"}, {"repeat": "hourly"}, {"accelerators": None}, {"begin": "9999-12-31T00:00"},
        ):  # fmt: skip
            status, told = await send("admin", "POST", "/v1/plans", {**COURSE, **change})
            assert status == 422, (change, told)
        assert (await send("admin", "POST", "/v1/plans", {**COURSE, "tenant": "nobody"}))[0] == 404
        assert (await send("admin", "POST", "/v1/plans", {**COURSE, "accelerators": 5}))[0] == 409

    ask(tmp_path, scene)


def test_only_the_admin_plans_and_others_learn_no_names(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        assert (await send("ada", "POST", "/v1/plans", COURSE))[0] == 403
        status, made = await send("admin", "POST", "/v1/plans", COURSE)
        assert (status, made["end"] - made["begin"]) == (201, 7200.0)
        assert (await send("admin", "POST", "/v1/plans", COURSE))[0] == 200
        assert (await send("ada", "GET", "/v1/plans"))[1]["plans"][0]["name"] == "course"
        (seen,) = (await send("bob", "GET", "/v1/plans"))[1]["plans"]
        assert (seen["name"], seen["tenant"], seen["because"], seen["id"], seen["maintenance"]) == (
            "",
            None,
            "",
            "",
            False,
        )
        assert seen["next_begin"] == made["begin"]
        assert (await send("bob", "DELETE", "/v1/plans/course"))[0] == 403
        assert (await send("admin", "DELETE", "/v1/plans/course"))[0] == 204
        assert (await send("admin", "DELETE", "/v1/plans/course"))[0] == 404

    ask(tmp_path, scene)


def test_a_sweep_is_its_tenants_alone(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        section = {"sweep": {"parameters": {"lr": [1, 2]}}}
        job = {"name": "tune", "command": ["train", "${sweep.lr}"], "array": "0-1", "extensions": section}
        assert (await send("ada", "POST", "/v1/jobs", job))[0] == 201
        status, found = await send("ada", "GET", "/v1/sweeps/tune")
        assert (status, [one["title"] for one in found["trials"]]) == (200, ["lr=1", "lr=2"])
        assert (await send("bob", "GET", "/v1/sweeps/tune"))[0] == 404
        assert (await send("bob", "GET", f"/v1/sweeps/{found['array']}?tenant=ada"))[0] == 404
        assert (await send("ada", "GET", "/v1/sweeps/%00"))[0] == 404
        plain = {"name": "plain", "command": ["train"], "array": "0-1"}
        assert (await send("ada", "POST", "/v1/jobs", plain))[0] == 201
        assert (await send("ada", "GET", "/v1/sweeps/plain"))[0] == 404
        wrong = {**job, "extensions": {"sweep": {"parameters": {"lr": {"min": 1, "max": 2}}}}}
        status, told = await send("ada", "POST", "/v1/jobs", wrong)
        assert (status, told["error"]["where"]) == (422, "extensions.sweep")

    ask(tmp_path, scene)


def test_the_page_shows_to_each_what_is_his(tmp_path: Path) -> None:
    async def scene(world: Planned, send: Ask) -> None:
        assert "calendar" not in (await send("ada", "GET", "/v1/pages"))[1]["pages"]
        await send("ada", "POST", "/v1/crons", CRON)
        await send("admin", "POST", "/v1/plans", {**COURSE, "begin": "2023-11-20T14:00"})
        for who, crons, name in (("ada", 1, "course"), ("bob", 0, "reserved"), ("admin", 1, "course")):
            _, page = await send(who, "GET", "/v1/pages/calendar")
            timeline, table = page["parts"]
            assert ([one["name"] for one in timeline["spans"]], len(table["rows"])) == ([name], crons)

    ask(tmp_path, scene)
