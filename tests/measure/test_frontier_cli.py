"""`shoal measure frontier`, `interference`, `compare` and `plan`, as a person calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from shoal.measure.commands import frontier as measure_frontier
from tests.measure.servers import Fake, running_server

app = typer.Typer()
measure_frontier.register(app)


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(Fake(models={"a": 0.004, "b": 0.002})) as found:
        yield found


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    profiles, servers = tmp_path / "models.json", tmp_path / "servers.yaml"
    profiles.write_text(
        json.dumps(
            {
                "models": [
                    {
                        "name": "resnet", "memory": "1.2GiB", "load": "2.5s",
                        "times": [
                            {"batch": 8, "seconds": 0.03},
                            {"batch": 1, "quantiles": {"0": "9ms", "0.5": "10ms", "1": "20ms"}},
                        ],
                    },
                    {"name": "bert", "memory": "2GiB", "times": [{"measured": [0.02, 0.021, 0.025]}]},
                    {"name": "slow", "times": [{"seconds": "800ms"}]},
                ]
            }
        )
    )  # fmt: skip
    servers.write_text("servers:\n  - {name: t4, per_hour: 0.35, memory: 16GiB}\n")
    return profiles, servers


def test_plan_shows_servers_reasons_and_costs(files: tuple[Path, Path], tmp_path: Path) -> None:
    words = [
        "plan",
        "--profiles",
        files[0],
        "--servers",
        files[1],
        "-r",
        "vision/resnet=20,80ms",
        "-r",
        "bert=5,150ms,p=0.95",
    ]
    told = call(*words, "--html", tmp_path / "plan.html")
    assert told.exit_code == 0
    assert "vision/resnet" in told.stdout
    assert "$0.35 for 1 servers" in told.stdout
    assert "t4-1: tightest is" in told.stdout
    assert "<svg" in (tmp_path / "plan.html").read_text()
    document = json.loads(call(*words, "--json").stdout)
    assert document["per_hour_micro_usd"] == 350_000
    assert document["saving"] == pytest.approx(0.5)
    assert {one["demand"] for one in document["servers"][0]["placements"]} == {"vision/resnet", "bert"}


def test_plan_reads_rates_from_a_file_and_names_what_it_cannot_place(files: tuple[Path, Path], tmp_path: Path) -> None:
    rates = tmp_path / "rates.yaml"
    rates.write_text("- {model: resnet, rate: 10, slo: 80ms, tenant: x}\n- {model: slow, rate: 0.1, slo: 0.5}\n")
    told = call("plan", "--profiles", files[0], "--servers", files[1], "--rates", rates)
    assert told.exit_code == 1
    assert "not placed: slow at 0.1/s: on t4: one execution of slow takes 800 ms" in told.stdout


def test_servers_of_a_plan_that_are_alike_are_one_line(files: tuple[Path, Path]) -> None:
    told = call("plan", "--profiles", files[0], "--servers", files[1], "-r", "resnet=2000,80ms", "--no-check")
    assert told.exit_code == 0
    assert len([line for line in told.stdout.splitlines() if "resnet" in line]) < 8
    assert re.search(r"t4-1 \+ \d+", told.stdout), told.stdout


@pytest.mark.few(count=1)
@pytest.mark.parametrize("model", ["queueing", "simulated"])
def test_plan_takes_every_model(files: tuple[Path, Path], model: str) -> None:
    told = call("plan", "--profiles", files[0], "--servers", files[1], "-r", "resnet=20,200ms", "--model", model)
    assert told.exit_code == 0
    assert f"the {model}" in told.stdout


@pytest.mark.parametrize(
    ("rate", "code", "said"),
    [
        ("resnet=20", 2, "does not say a rate and an objective"),
        ("resnet=20,80ms,x=1", 2, "does not say a rate and an objective"),
        ("resnet=-3,80ms", 2, "must be at least 0"),
        ("resnet=20,80", 2, "'80' is not a duration"),
        ("resnet=20,soon", 2, "'soon' is not a duration"),
        ("gpt=20,80ms", 3, "there is no profile of 'gpt'"),
    ],
)
def test_plan_says_what_is_wrong_with_a_rate(files: tuple[Path, Path], rate: str, code: int, said: str) -> None:
    told = call("plan", "--profiles", files[0], "--servers", files[1], "-r", rate)
    assert told.exit_code == code
    assert said in told.output


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 3, "there is no such file"),
        ("{", 2, "neither YAML nor JSON"),
        ("servers: []", 2, "servers"),
        ("servers:\n- {name: a}", 2, "servers[0].per_hour"),
        ("servers:\n- {name: a, per_hour: -1, slots: 0, shoes: 2}", 2, "3 problems"),
        ("servers:\n- {name: a, per_hour: 1, memory: lots}", 2, "'lots' is not a size"),
    ],
)
def test_plan_says_what_is_wrong_with_a_file(
    files: tuple[Path, Path], tmp_path: Path, text: str | None, code: int, said: str
) -> None:
    servers = tmp_path / "bad.yaml"
    if text is not None:
        servers.write_text(text)
    told = call("plan", "--profiles", files[0], "--servers", servers, "-r", "resnet=20,80ms")
    assert told.exit_code == code
    assert said in told.output
    assert "bad.yaml" in told.output


def test_plan_without_rates_asks_for_them(files: tuple[Path, Path]) -> None:
    told = call("plan", "--profiles", files[0], "--servers", files[1], "--json")
    assert told.exit_code == 2
    assert json.loads(told.stderr)["error"]["where"] == "--rate"


def test_interference_of_a_real_server(url: str, tmp_path: Path) -> None:
    told = call(
        "interference", "-T", f"x={url},a,60", "-T", f"y={url},b,60", "-d", "400ms", "-n", 2, "--warmup", "50ms",
        "--html", tmp_path / "i.html",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert "isolation" in told.stdout
    assert "warning: x: " in told.stderr
    assert "Interference" in (tmp_path / "i.html").read_text()


@pytest.mark.slow
def test_comparison_of_real_servers() -> None:
    # So far apart that what else the machine does cannot turn them round; each request has a worker of its own.
    with running_server(Fake(models={"a": 1.0, "b": 0.001}, workers=100)) as url:
        told = call(
            "compare", "-T", f"slow={url},a", "-T", f"fast={url},b", "--rate", 60, "-d", "400ms", "-n", 2, "--warmup",
            "50ms", "--slo", "50ms", "--json",
        )  # fmt: skip
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document["baseline"] == "slow"
    assert document["targets"]["fast"]["figures"]["p50_s"]["ratio"]["value"] < 1
    assert document["order"] == [["slow", "fast"], ["fast", "slow"]]


@pytest.mark.slow
def test_frontier_of_a_real_server(url: str, tmp_path: Path) -> None:
    told = call(
        "frontier", "-T", f"x={url},a,40ms,p=0.8", "-T", f"y={url},b,40ms,p=0.8", "--trial-time", "500ms",
        "--trial-requests", 300, "--mixes", 1, "--warmup", "50ms", "--want", "x=50", "--want", "y=50", "--price", "1.5",
        "--html", tmp_path / "f.html",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert "dedicated or" in told.stdout
    assert "kept" in told.stderr
    assert "Frontier" in (tmp_path / "f.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["frontier", "-T", "a=http://h,m,10ms"], 2, "one target is not enough"),
        (["frontier", "-T", "a=http://h,m", "-T", "b=http://h,m,1s"], 2, "it has no SLO"),
        (["frontier", "-T", "a=http://h", "-T", "b=http://h,m,1s"], 2, "is no target"),
        (["frontier", "-T", "a=http://h,m,1s,z=1", "-T", "b=http://h,m,1s"], 2, "is no target"),
        (["frontier", "-T", "a=http://h,m,1s", "-T", "a=http://h,n,1s"], 2, "share a name"),
        (["frontier", "-T", "a=http://h,m,1s,token-env=NO_SUCH", "-T", "b=http://h,m,1s"], 2, "has no NO_SUCH"),
        (["frontier", "-T", "a=http://h,m,1s", "-T", "b=http://h,m,1s", "--want", "z=1"], 2, "no target 'z'"),
        (["frontier", "-T", "a=http://h,m,1s", "-T", "b=http://h,m,1s", "--price", "1"], 2, "add --want"),
        (
            ["frontier", "-T", "a=http://127.0.0.1:1,m,1s", "-T", "b=http://127.0.0.1:1,m,1s"],
            4,
            "no server can be reached",
        ),
        (["interference", "-T", "a=http://h,m,many", "-T", "b=http://h,m,3"], 2, "'many' is not a positive number"),
        (["frontier", "-T", "a=http://h,m,1s,shape=x", "-T", "b=http://h,m,1s"], 2, "'x' is no shape"),
        (["compare", "-T", "a=http://h,m,input=no.json", "-T", "b=http://h,m", "--rate", "5"], 3, "no such file"),
        (["compare", "-T", "a=http://h,m", "-T", "b=http://h,m"], 2, "give --rate 100"),
        (["compare", "-T", "a=http://h,m,1s", "-T", "b=http://h,m", "--rate", "5"], 2, "what is '1s'?"),
    ],
)
def test_targets_that_mean_nothing_are_refused(words: list[str], code: int, said: str) -> None:
    told = call(*words)
    assert told.exit_code == code
    assert said in told.stderr


def test_a_report_hides_secrets_of_the_command_line() -> None:
    words = ["measure", "-T", "a=http://u:secret@h,m", "--token", "secret", "--token=secret"]
    assert "secret" not in " ".join(measure_frontier._without_secrets(words))
