"""Settings, home and tokens: what a server starts from."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.admission.types import Spread
from shoal.base.files import write_whole
from shoal.base.home import Home, ServerInfo, prepare_home, read_server, running_server, write_server
from shoal.base.http import Limits
from shoal.base.processes import start_ticks
from shoal.contract.principal import Principal
from shoal.contract.records import TokenRecord
from shoal.control import logsetup
from shoal.control.binding import bind
from shoal.control.limits import JobLimits
from shoal.control.server_settings import DEFAULT_PORT, TokenLimits
from shoal.control.settings import describe, load_settings
from shoal.control.tokens import TokenCache, Unauthenticated, new_token
from shoal.core import Conflict, Forbidden, Invalid, token_digest
from shoal.serve.live.extension import Serve, ServeSection


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    def port(flag: int | None = None, environ: dict[str, str] | None = None) -> int:
        return load_settings({"home": tmp_path, "port": flag}, environ=environ or {}).values.port

    assert port() == DEFAULT_PORT
    (tmp_path / "config.yaml").write_text("port: 1001\nplacement: spread\npreemption: off\n")
    assert port() == 1001
    assert port(environ={"SHOAL_PORT": "1002"}) == 1002
    assert port(1003, {"SHOAL_PORT": "1002"}) == 1003
    policy = load_settings({"home": tmp_path}, environ={}).policy
    assert (policy.placement, policy.preemption) == (Spread.SPREAD, False)


def test_a_setting_that_the_file_has_twice_is_named(tmp_path: Path) -> None:
    text = "port: 1\nguard: {enabled: on, enabled: off}\nport: 2\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(Invalid) as caught:
        load_settings({"home": tmp_path}, environ={})
    found = [(problem.what, problem.where) for problem in caught.value.problems]
    assert found == [
        ("enabled is given twice, first on line 2", f"{tmp_path}/config.yaml:2: enabled"),
        ("port is given twice, first on line 1", f"{tmp_path}/config.yaml:3: port"),
    ]


def test_the_home_comes_from_flag_environment_or_user_and_holds_the_database(tmp_path: Path) -> None:
    assert load_settings({}, environ={"SHOAL_HOME": str(tmp_path)}).database == f"sqlite:///{tmp_path}/shoal.db"
    assert load_settings({"home": tmp_path / "x"}, environ={"SHOAL_HOME": "/y"}).home.path == tmp_path / "x"
    assert load_settings({}, environ={}).home.path == Path("~/.shoal").expanduser()


@pytest.mark.parametrize(
    ("flags", "environ", "file", "where", "what"),
    [
        ({"port": 70000}, {}, "", "--port", "at most 65535"),
        ({}, {"SHOAL_PORT": "http"}, "", "SHOAL_PORT", "whole number"),
        ({}, {}, "port: [1]", "config.yaml: port", "whole number"),
        ({}, {"SHOAL_PREEMPTION": "maybe"}, "", "SHOAL_PREEMPTION", "true or false"),
        ({"placement": "wide"}, {}, "", "--placement", "pack or spread"),
        ({"db": "mysql://x"}, {}, "", "--db", "sqlite:///PATH or postgresql://"),
        ({"slots": 0}, {}, "", "--slots", "at least 1"),
        ({}, {}, "backfill_s: .inf", "config.yaml: backfill_s", "finite number"),
        ({}, {}, "prot: 1", "config.yaml: prot", "no setting 'prot'"),
        ({}, {}, "[", "config.yaml", "not YAML"),
        ({}, {}, "3", "config.yaml", "mapping"),
        ({}, {}, "[]", "config.yaml", "mapping"),
        ({}, {}, "serve: {price_per_hour: -1}", "config.yaml: serve.price_per_hour", "at least 0"),
        ({}, {}, "schedule: max-min", "config.yaml: schedule", "mapping of fields"),
        ({}, {}, "guard: {polcy: x}", "config.yaml: guard.polcy", "no setting 'guard.polcy'"),
        ({}, {"SHOAL_GUARD__MAX_SLOWDOWN": "1"}, "", "SHOAL_GUARD__MAX_SLOWDOWN", "more than 1"),
    ],
)
def test_a_wrong_setting_names_the_place_it_came_from(
    tmp_path: Path, flags: dict[str, object], environ: dict[str, str], file: str, where: str, what: str
) -> None:
    (tmp_path / "config.yaml").write_text(file)
    with pytest.raises(Invalid, match=what) as refused:
        load_settings({"home": tmp_path, **flags}, environ=environ)
    assert (refused.value.where or "").endswith(where)


def test_limits_of_clients_are_settings_of_both_doors(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "http: {head_kib: 8, head_s: 1, body_s: 2, slowest_kib_per_s: 3, idle_s: 4, connections: 5,\n"
        "  connections_per_address: 6, reserved_files: 70}\n"
        "tokens: {requests_per_s: 8.5, burst: 9, streams: 10}\n"
        "serve: {body_limit_mib: 11}\n"
    )
    found = load_settings({"home": tmp_path}, environ={"SHOAL_TOKENS__STREAMS": "12"}).values
    api = Limits(
        head=8192, head_s=1, body_s=2, slowest_bytes_per_s=3072, idle_s=4, connections=5, per_address=6,
        reserved_files=70,
    )  # fmt: skip
    assert found.http.limits() == api
    serve = found.section(Serve)
    assert isinstance(serve, ServeSection)
    assert serve.gateway(any_port=False, limits=api).http_limits == replace(api, body=11 << 20)
    assert found.tokens == TokenLimits(requests_per_s=8.5, burst=9, streams=12)
    nothing = load_settings({"home": tmp_path / "other"}, environ={}).values
    assert (nothing.http.limits(), nothing.tokens) == (Limits(), TokenLimits())


def test_limits_of_jobs_are_settings(tmp_path: Path) -> None:
    sets = ["jobs.default_cpus=2", "jobs.default_memory=1GiB", "jobs.max_processes=9", "jobs.max_open_files=99",
            "jobs.max_log=3MiB", "jobs.max_disk=4MiB", "jobs.max_files=77"]  # fmt: skip
    found = load_settings({"home": tmp_path}, sets=sets, environ={}).values.jobs.limits()
    assert found == JobLimits(2.0, 1 << 30, 9, 99, 3 << 20, 4 << 20, files=77)
    with pytest.raises(Invalid, match="must be a size such as 512MiB"):
        load_settings({"home": tmp_path}, sets=["jobs.max_disk=much"], environ={})


def test_every_setting_is_described(tmp_path: Path) -> None:
    rows = describe(load_settings({"home": tmp_path}, sets=["serve.slots=3"], environ={}))
    assert all(row.text for row in rows)
    assert {row.name: row.value for row in rows if row.value != row.default} == {
        "home": str(tmp_path),
        "serve.slots": 3,
    }
    assert {row.variable for row in rows if row.name in ("port", "serve.slots")} == {"SHOAL_PORT", "SHOAL_SERVE__SLOTS"}


def test_a_described_value_is_what_a_settings_file_takes(tmp_path: Path) -> None:
    sets = ["keep.jobs=36h", "jobs.max_log=3MiB", "keep.runs_size=1GiB"]
    settings = load_settings({"home": tmp_path}, sets=sets, environ={})
    rows = {row.name: row.value for row in describe(settings) if row.name != "home" and row.value not in (None, {}, [])}
    assert [rows["keep.jobs"], rows["jobs.max_log"], rows["keep.runs_size"]] == ["36h", "3MiB", "1GiB"]
    file: dict[str, Any] = {}
    for name, value in rows.items():
        *above, last = name.split(".")
        (file.setdefault(above[0], {}) if above else file)[last] = value
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(file))
    again = load_settings({"home": tmp_path}, environ={})
    assert again.values.model_dump() == settings.values.model_dump()


def test_all_wrong_settings_are_named_at_once_and_a_near_miss_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("prot: 1\nslots: none\n")
    with pytest.raises(Invalid) as refused:
        load_settings({"home": tmp_path, "port": -1}, environ={})
    problems = refused.value.problems
    assert len(problems) == 3
    assert any(problem.hint == "did you mean port?" for problem in problems)
    with pytest.raises(Invalid, match="no such settings file"):
        load_settings({"home": tmp_path}, environ={}, config=tmp_path / "absent.yaml")


def test_the_home_and_its_files_are_the_owners_only(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "deep" / "home")
    write_whole(home.token_file, "secret\n")
    write_server(home, ServerInfo(os.getpid(), 1, "http://x"))
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.path.iterdir()} == {0o600}
    with pytest.raises(Invalid, match="cannot be used"):
        prepare_home(home.token_file)


def test_a_server_is_known_by_pid_and_start_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    started = start_ticks(os.getpid())
    assert started is not None
    write_server(home, ServerInfo(os.getpid(), started, "http://x"))
    assert running_server(home) is not None
    write_server(home, ServerInfo(os.getpid(), started - 1, "http://x"))
    assert read_server(home) is not None
    assert running_server(home) is None
    home.server_file.write_text("{")
    assert read_server(home) is None


@contextlib.contextmanager
def bound(host: str, port: int, preferred: int | None = None) -> Iterator[list[socket.socket]]:
    listeners = bind(host, port, preferred=preferred)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in listeners]


def test_a_taken_port_and_a_foreign_address_are_told_apart() -> None:
    with bound("127.0.0.1", 0) as taken:
        port = taken[0].getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is taken"):
            bind("127.0.0.1", port)
        with bound("127.0.0.1", 0, preferred=port) as other:
            assert other[0].getsockname()[1] != port
    with bound("127.0.0.1", 0, preferred=port) as again:
        assert again[0].getsockname()[1] == port
    with pytest.raises(Invalid, match="no address of this machine"):
        bind("no such host", 1)
    with pytest.raises(Invalid, match="cannot listen"):
        bind("192.0.2.1", 1)


@pytest.mark.skipif(not Path("/proc/sys/net/ipv6").exists(), reason="there is no IPv6 here")
@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1"), ("localhost", "::1")])
def test_nobody_else_can_answer_at_the_other_loopback_address(host: str, other: str) -> None:
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with bound(host, 0) as ours:
        port = ours[0].getsockname()[1]
        assert {one.getsockname()[:2] for one in ours} == {("127.0.0.1", port), ("::1", port)}
        with socket.socket(family) as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                thief.bind((other, port))
    with socket.socket(family) as thief:  # it was first: then the server does not start beside it
        thief.bind((other, 0))
        thief.listen()
        port = thief.getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} on {host} is taken"):
            bind(host, port)
        with bound(host, 0, preferred=port) as elsewhere:
            assert port not in {one.getsockname()[1] for one in elsewhere}


def test_a_token_is_known_by_its_hash_until_it_is_revoked() -> None:
    token = new_token("red")
    record = TokenRecord("t", "red", token_digest(token), "", 0.0)
    cache = TokenCache([record])
    assert cache.principal(f"bearer {token}") == Principal("red", "t")
    assert token not in repr(cache.__dict__)
    cache.replace([TokenRecord("t", "red", token_digest(token), "", 0.0, revoked_at=1.0)])
    with pytest.raises(Unauthenticated):
        cache.principal(f"Bearer {token}")


def test_tokens_say_whose_they_are_and_never_repeat() -> None:
    tokens = {new_token(tenant) for tenant in (None, "red") for _ in range(50)}
    assert len(tokens) == 100
    assert {token.split("_")[1] for token in tokens} == {"admin", "red"}
    assert {len(token.split("_", 2)[2]) for token in tokens} == {43}


def test_principals_see_their_own_and_the_admin_everything() -> None:
    admin, red = Principal(None, "a"), Principal("red", "r")
    assert (admin.actor, red.actor) == ("admin", "tenant:red")
    assert admin.may_see("red")
    assert admin.may_see(None)
    assert red.may_see("red")
    assert not red.may_see("blue")
    assert not red.may_see(None)
    admin.require_admin("x")
    with pytest.raises(Forbidden):
        red.require_admin("x")


def test_the_log_hides_tokens_and_passwords() -> None:
    token = new_token("red")
    entry = {"event": f"got {token}", "db": "postgresql://shoal:hunter2@host/db", "Authorization": "Bearer x", "n": 1}
    hidden = logsetup.hide_secrets(None, "info", dict(entry))
    assert json.loads(json.dumps(hidden)) == {
        "event": "got shoal_red_***", "db": "postgresql://shoal:***@host/db", "Authorization": "***", "n": 1,
    }  # fmt: skip
