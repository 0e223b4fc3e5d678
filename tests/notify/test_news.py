"""News of a real server's jobs, to a real receiver and a real mail server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from shoal.core import Forbidden, Invalid, NotFound

from .conftest import Site
from .kit import Receiver, eventually, receiver

SMALL = {"resources": {"cpus": 0.1}}


def job(name: str, command: str = "true", **more: object) -> dict[str, object]:
    return {"name": name, "command": ["sh", "-c", command], **SMALL, **more}


def test_a_subscription_is_told_how_jobs_end_signed_and_its_secret_is_shown_once(site: Site, hook: Receiver) -> None:
    made = site.json("notify", "add", "signed", "--webhook", hook.url, "--on", "ended", "--jobs", "signed-*")
    assert made["address"] == hook.url.removesuffix("/hook") + "/..."
    site.shoal("run", "--name", "signed-good", "--cpus", "0.1", "--", "true")
    site.shoal("run", "--name", "signed-bad", "--cpus", "0.1", "--", "sh", "-c", "exit 3", code=1)
    site.shoal("run", "--name", "other", "--cpus", "0.1", "--", "true")
    eventually(lambda: len(hook.told()) == 2)
    good, bad = hook.told()
    assert (good["topic"], good["title"], good["tenant"]) == ("ended", "job signed-good succeeded", "default")
    assert bad["topic"] == "failed"
    assert bad["facts"]["name"] == "signed-bad"
    for request in hook.requests:
        assert Webhook(made["secret"]).verify(request.body, request.headers)
        assert request.headers["webhook-id"] == request.key
    shown = site.shoal("notify", "list", "--json").stdout + site.shoal("status", "notify", "--json").stdout
    assert made["secret"] not in shown
    assert "/hook" not in shown
    eventually(lambda: not site.json("notify", "deliveries", "--state", "waiting")["deliveries"])
    listed = site.json("notify", "deliveries")["deliveries"]
    assert {one["id"] for one in listed if one["to"] == "signed"} == {one.key for one in hook.requests}
    site.shoal("notify", "remove", "signed")
    assert "signed" not in [one["name"] for one in site.json("notify", "list")["subscriptions"]]


def test_nothing_of_an_address_is_on_disk_in_the_clear(site: Site, hook: Receiver) -> None:
    site.json("notify", "add", "sealed", "--slack", "-", stdin=f"{hook.url}/very-secret-token\n")
    site.shoal("notify", "test", "sealed")
    site.shoal("notify", "remove", "sealed")
    assert json.loads(hook.requests[0].body)["text"].startswith("Shoal: this is a trial message")
    found = [path for path in site.home.rglob("*") if path.is_file() and b"very-secret-token" in path.read_bytes()]
    assert found == []


def test_a_job_tells_whom_it_names_by_option_manifest_and_batch_script(site: Site, tmp_path: Path) -> None:
    site.shoal("run", "--name", "by-option", "--cpus", "0.1", "--notify", "ada@example.org:started,ended", "--", "true")
    manifest = tmp_path / "job.yaml"
    manifest.write_text(json.dumps(job("by-manifest", "exit 1", files=["job.yaml"])))
    site.shoal("submit", str(manifest), "--notify", "ada@example.org:failed")
    script = tmp_path / "batch.sh"
    script.write_text("#!/bin/sh\n#SBATCH -J by-script --mail-type=END,FAIL --mail-user=ada@example.org\ntrue\n")
    assert "mail" not in site.shoal("sbatch", str(script)).stderr
    eventually(lambda: len(site.mail.to("ada@example.org")) == 4)
    subjects = sorted(one.message["Subject"] for one in site.mail.to("ada@example.org"))
    assert subjects[1:] == [
        "Shoal: job by-option runs", "Shoal: job by-option succeeded", "Shoal: job by-script succeeded",
    ]  # fmt: skip
    assert subjects[0].startswith("Shoal: job by-manifest failed: ")


def test_mail_types_that_have_no_counterpart_are_named(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "batch.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mail-type=END,TIME_LIMIT_80 --mail-user=ada,ada@example.org\ntrue\n")
    shown = site.shoal("import", "slurm", str(script))
    assert "--mail-user=ada is left out" in shown.stderr
    assert "--mail-type=TIME_LIMIT_80 is left out" in shown.stderr
    script.write_text("#!/bin/sh\n#SBATCH --mail-type=END\ntrue\n")
    assert "no --mail-user says who is told" in site.shoal("import", "slurm", str(script)).stderr


def test_an_array_is_told_of_once(site: Site, hook: Receiver) -> None:
    site.json("notify", "add", "arrays", "--webhook", hook.url, "--jobs", "many")
    with site.client() as client:
        client.submit(job("many", 'test "$SHOAL_ARRAY_INDEX" != 2', array="0-3"))
        eventually(lambda: bool(hook.told()))
        client.submit(job("many"))  # what comes behind it comes second
    eventually(lambda: len(hook.told()) == 2)
    assert hook.told()[0]["title"] == "job array many is over; not all of its tasks succeeded"
    assert hook.told()[1]["title"] == "job many succeeded"
    site.shoal("notify", "remove", "arrays")


def test_a_job_that_waits_too_long_is_told_of_once(site: Site, hook: Receiver) -> None:
    site.json("notify", "add", "waits", "--webhook", hook.url, "--waits", "1s")
    with site.client() as client:
        waits = client.submit(job("never", resources={"cpus": 1000}))
        eventually(lambda: bool(hook.told("waits")))
        client.cancel(waits.id)
    assert hook.told("waits")[0]["title"].startswith("job never waits for more than 1s")
    assert len(hook.told("waits")) == 1
    site.shoal("notify", "remove", "waits")


def test_a_receiver_that_never_answers_holds_up_no_other(site: Site, hook: Receiver) -> None:
    done = threading.Event()

    def never(_: object) -> int:
        done.wait(60)
        return 204

    with receiver() as bad:
        bad.answer = never
        site.json("notify", "add", "stuck", "--webhook", bad.url, "--jobs", "held-*")
        site.json("notify", "add", "well", "--webhook", hook.url, "--jobs", "held-*")
        with site.client() as client:
            for number in range(8):
                client.submit(job(f"held-{number}"))
        eventually(lambda: len(hook.told()) == 8)
        eventually(lambda: any(one["error"] for one in site.json("notify", "deliveries")["deliveries"]))
        assert len({one.key for one in bad.requests}) <= 4  # the others wait as rows
        wrong = next(one for one in site.json("notify", "deliveries")["deliveries"] if one["error"])
        assert (wrong["to"], wrong["state"], wrong["error"]) == ("stuck", "waiting", "no answer within 2 s")
        bad.answer = lambda _: 204
        done.set()
        eventually(lambda: len(bad.told()) == 8)
    bodies = {(one.key, one.body) for one in bad.requests}
    assert len(bodies) == len({key for key, _ in bodies})  # a repeated delivery has the key and the body of the first
    site.shoal("notify", "remove", "stuck")
    site.shoal("notify", "remove", "well")


def test_inward_addresses_and_lost_receivers_are_given_up_and_shown(site: Site) -> None:
    site.json("notify", "add", "metadata", "--webhook", "http://169.254.169.254/latest/meta-data")
    assert "leads inward" in site.shoal("notify", "test", "metadata", code=1).stdout
    with site.client() as client:
        client.submit(job("to-nobody", extensions={"notify": {"to": ["nobody-here"]}}))
        client.submit(job("to-others", extensions={"notify": {"to": ["eve@evil.example"]}}))

    def given_up() -> dict[str, str]:
        listed = site.json("notify", "deliveries", "--state", "gave-up")["deliveries"]
        return {one["to"]: one["error"] for one in listed}

    eventually(lambda: {"nobody-here", "eve@evil.example", "metadata"} <= given_up().keys())
    listed = site.json("notify", "deliveries", "--state", "gave-up")["deliveries"]
    lost = next(one["id"] for one in listed if one["to"] == "nobody-here")
    assert site.json("notify", "retry", lost)["state"] == "waiting"
    eventually(lambda: "nobody-here" in given_up())
    assert given_up()["nobody-here"] == "there is no subscription 'nobody-here'"
    assert given_up()["eve@evil.example"] == "no mail goes to evil.example"
    site.shoal("notify", "remove", "metadata")


def test_tenants_see_and_change_their_own_only(site: Site, hook: Receiver) -> None:
    with site.client() as admin:
        for name in ("red", "blue"):
            admin.create_tenant(name)
        tokens = {name: admin.create_token(tenant=name).token for name in ("red", "blue")}
        admin.notify.add("all", kind="webhook", address=hook.url, topics=["ended"], everyone=True)
        with site.client(tokens["red"]) as red, site.client(tokens["blue"]) as blue:
            red.notify.add("mine", kind="webhook", address=hook.url, topics=["ended"])
            made = red.notify.trial("mine")
            eventually(lambda: red.notify.delivery(made.id).state == "sent")
            assert [one.name for one in red.notify.subscriptions().subscriptions] == ["mine"]
            assert blue.notify.subscriptions().subscriptions == ()
            assert blue.notify.deliveries().deliveries == ()
            for attack in (
                lambda: blue.notify.delivery(made.id), lambda: blue.notify.retry(made.id),
                lambda: blue.notify.remove("mine"), lambda: blue.notify.trial("mine"),
                lambda: blue.notify.subscriptions(tenant="red"), lambda: blue.notify.deliveries(tenant="red"),
            ):  # fmt: skip
                with pytest.raises(NotFound):
                    attack()
            for attack in (
                lambda: blue.notify.remove("all", everyone=True),
                lambda: blue.notify.add("x", kind="webhook", address=hook.url, topics=["ended"], everyone=True),
                lambda: blue.notify.add("x", kind="webhook", address=hook.url, topics=["ended"], tenant="red"),
            ):
                with pytest.raises(Forbidden):
                    attack()
        admin.notify.remove("all", everyone=True)
        admin.notify.remove("mine", tenant="red")
    assert all(news["topic"] == "test" for news in hook.told())


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--mail", "eve@evil.example"], "no mail goes to evil.example"),
        (["--mail", "not an address"], "no mail address"),
        (["--webhook", "ftp://example.org/"], "begins with https://"),
        (["--webhook", "https://user:pw@example.org/"], "name or password"),
        ([], "news go to one place"),
        (["--mail", "a@example.org", "--slack", "https://x.org/"], "news go to one place"),
        (["--mail", "a@example.org", "--on", "everything"], "everything"),
        (["--mail", "a@example.org", "--on", "waits"], "need each other"),
        (["--mail", "a@example.org", "--quiet", "22-7"], "no quiet hours"),
        (["--mail", "a@example.org", "--zone", "Mars/Base"], "no time zone"),
        (["--mail", "a@example.org", "--digest", "3"], "no digest"),
        (["--mail", "a@example.org", "--waits", "soon"], "duration"),
    ],
)
def test_wrong_subscriptions_are_refused_in_words(site: Site, words: list[str], wrong: str) -> None:
    assert wrong in site.shoal("notify", "add", "wrong", *words, code=2).stderr


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ({}, "to"),
        ({"to": []}, "to"),
        ({"to": ["a b"]}, "neither a mail address nor the name"),
        ({"to": ["a@b.org\nBcc: x@y.org"]}, "no mail address"),
        ({"to": ["team"], "on": ["budget"]}, "not told of budget"),
        ({"to": ["team"], "on": ["waits"]}, "need each other"),
        ({"to": ["team"], "nonsense": 1}, "nonsense"),
    ],
)
def test_wrong_sections_of_manifests_are_refused(site: Site, section: dict[str, object], wrong: str) -> None:
    with site.client() as client, pytest.raises(Invalid, match=wrong):
        client.check(job("wrong", extensions={"notify": section}))


def test_a_second_subscription_of_a_name_is_refused(site: Site, hook: Receiver) -> None:
    site.json("notify", "add", "twice", "--webhook", hook.url)
    assert "already" in site.shoal("notify", "add", "twice", "--webhook", hook.url, code=6).stderr
    site.shoal("notify", "remove", "twice")
    site.shoal("notify", "remove", "twice", code=3)
    site.shoal("notify", "test", "twice", code=3)
