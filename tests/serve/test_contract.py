"""The two files between control plane and gateway: what is written is read, half or foreign files are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Conflict, Invalid, Money, PriorityClass, Reason, Unavailable
from shoal.inference.types import DataType, ModelSpec, TensorSpec
from shoal.serve import contract
from shoal.serve.contract import (
    Address,
    Deployment,
    GatewayConfig,
    GatewayStatus,
    ModelState,
    ReplicaStatus,
    ServiceStatus,
    TenantEntry,
    UsageTotal,
    VersionStatus,
)
from shoal.serve.types import Route, ServiceSpec

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
tensors = st.builds(TensorSpec, words, st.sampled_from(DataType), st.lists(st.integers(-1, 99), max_size=3).map(tuple))
model_specs = st.builds(
    ModelSpec, words, words, words, words, st.integers(1, 9), st.integers(0, 9),
    st.integers(0, 9), st.none() | words, st.lists(tensors, max_size=2).map(tuple),
)  # fmt: skip
shares = st.lists(st.tuples(words, st.floats(0, 1)), max_size=3).map(tuple)
routes = st.builds(Route, shares, st.none() | words, st.floats(0, 1))
specs = st.builds(
    ServiceSpec, words, words, st.lists(model_specs, max_size=2).map(tuple),
    st.lists(st.tuples(words, routes), max_size=2).map(tuple), st.integers(0, 9), st.sampled_from(PriorityClass),
    st.none() | st.floats(0.001, 9), st.none() | st.floats(0.001, 9),
)  # fmt: skip
deployments = st.builds(Deployment, words, st.integers(1, 99), specs, words)
addresses = st.builds(Address, words, st.integers(0, 65535))
tenants = st.builds(TenantEntry, words, st.floats(0.1, 9), st.lists(words, max_size=2).map(tuple))
configs = st.builds(
    GatewayConfig, st.integers(0, 2**40), words, st.integers(1, 99), addresses, addresses,
    st.integers(0, 2**40).map(Money),
    st.lists(tenants, max_size=2).map(tuple), st.lists(words, max_size=2).map(tuple), st.none() | words,
    st.lists(deployments, max_size=2).map(tuple),
)  # fmt: skip
reasons = st.builds(Reason, words, words, st.dictionaries(words, st.integers(0, 9) | words, max_size=2))
service_states = st.builds(
    ServiceStatus, words,
    st.lists(st.builds(ReplicaStatus, words, st.booleans(), words, st.booleans()), max_size=2).map(tuple),
    st.lists(st.builds(VersionStatus, words, words, st.sampled_from(ModelState), words), max_size=2).map(tuple),
    st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.floats(0, 9), st.none() | st.floats(0, 9),
    st.none() | st.floats(0, 9), st.none() | reasons,
)  # fmt: skip
usages = st.builds(UsageTotal, words, st.floats(0, 1e9), st.integers(0, 2**40).map(Money))
statuses = st.builds(
    GatewayStatus, st.integers(1, 2**22), st.integers(0, 2**40), st.floats(0, 2e9), st.integers(0, 99), addresses,
    addresses, st.lists(service_states, max_size=2).map(tuple), st.lists(usages, max_size=2).map(tuple),
)  # fmt: skip

HOLDER = """
import pathlib, sys
from shoal.serve import contract
contract.hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
CONFIG = GatewayConfig(1, "/run/replicas.sock", 4)
STATUS = GatewayStatus(10, 20, 30.0, 1, Address(port=1), Address(port=2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@given(config=configs)
@settings(max_examples=60, deadline=None)
def test_a_config_comes_back_as_it_was(folder: Path, config: GatewayConfig) -> None:
    contract.write_config(folder, config)
    assert contract.read_config(folder) == config


@given(status=statuses)
@settings(max_examples=60, deadline=None)
def test_a_status_comes_back_as_it_was(folder: Path, status: GatewayStatus) -> None:
    contract.write_status(folder, status)
    assert contract.read_status(folder) == status


def test_before_anything_was_written_there_is_nothing(tmp_path: Path) -> None:
    assert contract.read_config(tmp_path) is None
    assert contract.read_status(tmp_path) is None
    assert not contract.held(tmp_path)


def test_the_files_are_the_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    contract.write_config(tmp_path, CONFIG)
    contract.write_status(tmp_path, STATUS)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"config.json": 0o600, "status.json": 0o600}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "the text: invalid JSON"), ("{", "the text: invalid JSON"),
     ('{"generation": 1}', "socket: this field is missing"),
     ('{"generation": "x", "socket": "s", "slots": 1}', "generation: must be a whole number"),
     ('{"generation": 1, "socket": "s", "slots": 1, "version": 2}', "this is version 2 of the file, and 1 is known")],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Invalid, match=message) as caught:
        contract.read_config(tmp_path)
    assert caught.value.where == str(tmp_path / "config.json")
    assert caught.value.hint


def test_fields_of_a_later_release_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"generation": 1, "socket": "s", "slots": 1, "colour": "red"}')
    assert contract.read_config(tmp_path) == GatewayConfig(1, "s", 1)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be written: No such file"):
        contract.write_config(tmp_path / "absent", CONFIG)


def test_one_gateway_at_a_time_and_the_kernel_says_when_it_is_gone(tmp_path: Path) -> None:
    lock = contract.hold(tmp_path)
    assert contract.held(tmp_path)
    with pytest.raises(Conflict, match="a gateway serves this directory already"):
        contract.hold(tmp_path)
    os.close(lock)
    assert not contract.held(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert contract.held(tmp_path)
    holder.kill()
    holder.communicate()
    assert not contract.held(tmp_path)


@given(
    service=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 10**6),
    generation=st.integers(1, 10**6),
)
def test_a_replicas_name_says_whose_it_is(service: str, index: int, generation: int) -> None:
    assert contract.parse_replica_name(contract.replica_name(service, index, generation)) == (
        service,
        index,
        generation,
    )


def test_a_name_of_something_else_is_no_replicas() -> None:
    for name in ("", "ocr", "ocr-1", "ocr-a-1"):
        with pytest.raises(ValueError):  # noqa: PT011 - what int and unpacking say
            contract.parse_replica_name(name)


def test_ready_are_the_replicas_that_say_so() -> None:
    status = ServiceStatus("s-1", (ReplicaStatus("a", True), ReplicaStatus("b", False, "loading")))
    assert status.ready == ("a",)
    assert replace(status, replicas=()).ready == ()


def test_the_contract_is_light_until_it_is_used() -> None:
    code = "import sys; import shoal.serve.contract; print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
