from __future__ import annotations

import asyncio
import io
import tarfile
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from shoal.contract import models
from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time

MANIFEST = {"name": "train", "command": ["run", "3"]}


async def test_a_submission_is_accepted_once_stored_and_shown_in_the_declared_shape(house: House) -> None:
    async with house.client("red") as client:
        response = await client.post("/v1/jobs", json=MANIFEST)
        job = response.json()
        assert response.status_code == 201
        assert response.headers["location"] == f"/v1/jobs/{job['id']}"
        assert (job["tenant"], job["name"], job["state"]) == ("red", "train", "QUEUED")
        assert house.plane.store.job(job["id"]) is not None
        shown = (await client.get(response.headers["location"])).json()
    assert set(job) == set(models.SubmittedView.model_fields)
    assert set(shown) == set(models.JobDetail.model_fields)
    assert models.JobDetail.model_validate(shown).manifest["command"] == ["run", "3"]


async def test_yaml_and_json_bodies_mean_the_same_whatever_the_content_type(house: House) -> None:
    async with house.client("red") as client:
        for kind in ("application/yaml", "text/plain", "application/x-www-form-urlencoded", ""):
            response = await client.post("/v1/jobs", content=yaml.safe_dump(MANIFEST), headers={"content-type": kind})
            assert response.status_code == 201, response.text


async def test_the_same_key_twice_is_one_job(house: House) -> None:
    async with house.client("red") as client:
        first = await client.post("/v1/jobs", json=MANIFEST, headers={"Idempotency-Key": "k"})
        again = await client.post("/v1/jobs", json=MANIFEST, headers={"Idempotency-Key": "k"})
        other = await client.post("/v1/jobs", json={**MANIFEST, "name": "other"}, headers={"Idempotency-Key": "k"})
        listed = (await client.get("/v1/jobs")).json()["jobs"]
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert again.json()["id"] == first.json()["id"]
    assert len(listed) == 1


async def test_a_deadline_that_has_passed_is_refused_with_its_line(house: House) -> None:
    late = "name: late\ncommand: [run]\ndeadline: 2001-01-01T00:00:00Z\n"
    async with house.client("red") as client:
        for path in ("/v1/jobs", "/v1/manifests/check"):
            response = await client.post(path, content=late)
            error = models.ErrorView.model_validate(response.json()).error
            assert (response.status_code, error.where) == (422, "manifest:3: deadline")
            assert "has passed already, 2001-01-01T00:00:00Z" in error.what
            assert "a time after now" in str(error.hint)
        assert (await client.get("/v1/jobs")).json()["jobs"] == []


async def test_a_repeated_submission_is_answered_even_after_its_deadline(house: House) -> None:
    soon = datetime.fromtimestamp(house.plane.clock.now() + 5.0, UTC).isoformat()
    body = {**MANIFEST, "deadline": soon}
    async with house.client("red") as client:
        first = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
        await asyncio.sleep(10.0)
        again = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]


async def test_the_same_key_of_two_tenants_is_two_jobs(house: House) -> None:
    ids = set()
    for who in ("red", "blue"):
        async with house.client(who) as client:
            ids.add((await client.post("/v1/jobs", json=MANIFEST, headers={"Idempotency-Key": "k"})).json()["id"])
    assert len(ids) == 2


async def test_a_wrong_manifest_is_refused_with_every_problem_and_nothing_is_stored(house: House) -> None:
    async with house.client("red") as client:
        response = await client.post("/v1/jobs", content="name: BAD NAME\ncommand: [x]\nrankz: 2\n")
        error = models.ErrorView.model_validate(response.json()).error
        assert response.status_code == 422
        assert error.code == "invalid"
        places = [problem.where or "" for problem in error.problems]
        assert any("name" in place for place in places)
        assert any("rankz" in place for place in places)
        assert any(":3:" in place for place in places)
        assert (await client.get("/v1/jobs")).json() == {"jobs": [], "arrays": [], "next": None}


async def test_a_job_is_found_by_id_by_its_beginning_and_by_name_the_newest_first(house: House) -> None:
    old = await house.submit(name="twin", seconds=50)
    await asyncio.sleep(1)
    new = await house.submit(name="twin", seconds=50)
    async with house.client("red") as client:
        for ref in (new["id"], new["id"][:8], "twin"):
            assert (await client.get(f"/v1/jobs/{ref}")).json()["id"] == new["id"], ref
        assert (await client.get(f"/v1/jobs/{old['id'][:8]}")).json()["id"] == old["id"]
        # Everything begins with "j-", which is too short to mean anything.
        assert (await client.get("/v1/jobs/j-")).status_code == 404


async def test_a_name_that_means_several_unfinished_jobs_changes_none_of_them(house: House) -> None:
    ids = {(await house.submit(name="twin", seconds=50))["id"] for _ in range(2)}
    async with house.client("red") as client:
        refused = await client.post("/v1/jobs/twin/cancel")
        assert refused.status_code == 409
        assert all(job_id in refused.json()["error"]["what"] for job_id in ids)
        for job_id in sorted(ids):
            cancelled = await client.post(f"/v1/jobs/{job_id}/cancel")
            assert cancelled.status_code == 200, cancelled.text


async def test_listing_by_order_time_and_pattern_goes_over_all_jobs_page_by_page(house: House) -> None:
    times = {}
    for number, seconds in enumerate((3.0, 1.0, 2.0, 1.0)):
        job = await house.submit(name=f"n{number}", seconds=seconds)
        times[job["name"]] = job["submitted_at"]
        await asyncio.sleep(5)

    async with house.client("red") as client:

        async def named(**params: Any) -> list[str]:
            found: list[str] = []
            before = None
            while True:
                asked = {**params, "limit": 1, **({"before": before} if before else {})}
                page = (await client.get("/v1/jobs", params=asked)).json()
                found += [job["name"] for job in page["jobs"]]
                before = page["next"]
                if before is None:
                    return found

        assert (await named(sort="ran"))[:2] == ["n0", "n2"]
        assert await named(sort="name") == ["n0", "n1", "n2", "n3"]
        assert await named(sort="name", since=times["n2"]) == ["n2", "n3"]
        assert await named(name="n?", since=times["n3"] + 0.001) == []
        assert await named(name="*2") == ["n2"]
        refused = await client.get("/v1/jobs?sort=size")
        assert refused.status_code == 422


async def test_listing_filters_and_continues_where_it_stopped(house: House) -> None:
    made = []
    for number in range(5):
        made.append((await house.submit(name=f"n{number}", seconds=0.5))["id"])
        await asyncio.sleep(2)
    waiting = await house.submit(name="later", seconds=100, resources={"cpus": 500})
    async with house.client("red") as client:
        found, before = [], None
        while True:
            page = (await client.get("/v1/jobs", params={"limit": 2, **({"before": before} if before else {})})).json()
            found += [job["id"] for job in page["jobs"]]
            before = page["next"]
            if before is None:
                break
        assert found == [waiting["id"], *reversed(made)]
        queued = (await client.get("/v1/jobs?state=QUEUED&state=SUSPENDED")).json()["jobs"]
        assert [job["id"] for job in queued] == [waiting["id"]]
        assert [job["id"] for job in (await client.get("/v1/jobs?name=n3")).json()["jobs"]] == [made[3]]


async def test_waiting_for_a_job_answers_at_its_end_not_before_and_not_later(house: House) -> None:
    job = await house.submit(seconds=7)
    began = house.plane.clock.now()
    async with house.client("red") as client:
        early = (await client.get(f"/v1/jobs/{job['id']}?wait_s=2")).json()
        assert early["state"] == "RUNNING"
        assert house.plane.clock.now() - began == pytest.approx(2, abs=0.1)
        done = (await client.get(f"/v1/jobs/{job['id']}?wait_s=60")).json()
    assert done["state"] == "SUCCEEDED"
    assert house.plane.clock.now() - began < 20
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["succeeded"]


async def test_cancel_suspend_and_resume_and_what_they_refuse(house: House) -> None:
    job = (await house.submit(seconds=1000))["id"]
    await asyncio.sleep(5)
    async with house.client("red") as client:
        assert (await client.post(f"/v1/jobs/{job}/resume")).status_code == 409
        suspended = await client.post(f"/v1/jobs/{job}/suspend?cause=lunch")
        assert suspended.json()["desired"] == "suspend"
        assert (await client.get(f"/v1/jobs/{job}?wait_s=60")).json()["state"] == "SUSPENDED"
        assert (await client.post(f"/v1/jobs/{job}/resume")).json()["state"] == "QUEUED"
        await asyncio.sleep(5)
        await client.post(f"/v1/jobs/{job}/cancel")
        ended = (await client.get(f"/v1/jobs/{job}?wait_s=60")).json()
        assert ended["state"] == "CANCELLED"
        assert [attempt["outcome"] for attempt in ended["attempts"]] == ["suspended", "cancelled"]
        assert (await client.post(f"/v1/jobs/{job}/resume")).status_code == 409
        events = (await client.get(f"/v1/jobs/{job}/events")).json()["events"]
    assert any(event["cause"] == "lunch" and event["actor"] == "tenant:red" for event in events)


async def test_a_job_that_runs_again_says_since_when_and_how_long_it_ran_before(house: House) -> None:
    job = (await house.submit(seconds=1000))["id"]
    await asyncio.sleep(5)
    async with house.client("red") as client:
        await client.post(f"/v1/jobs/{job}/suspend")
        rests = (await client.get(f"/v1/jobs/{job}?wait_s=60")).json()
        assert (rests["state"], rests["running_at"]) == ("SUSPENDED", None)
        await client.post(f"/v1/jobs/{job}/resume")
        await asyncio.sleep(5)
        (listed,) = (await client.get("/v1/jobs")).json()["jobs"]
        shown = models.JobDetail.model_validate((await client.get(f"/v1/jobs/{job}")).json())
    before, now = shown.attempts
    assert now.running_at is not None
    assert before.running_at is not None
    assert listed["running_at"] == shown.running_at == now.running_at
    assert shown.started_at == before.running_at < shown.running_at
    assert shown.ran_until(shown.running_at + 7.0) == pytest.approx(rests["ran_s"] + 7.0)


async def test_many_jobs_are_cancelled_by_one_request_and_each_refusal_is_told(house: House) -> None:
    async with house.client("red") as client, house.client("blue") as other:
        waits = {**MANIFEST, "resources": {"accelerators": {"type": "any", "count": 64}}}  # more than there are
        ids = [(await client.post("/v1/jobs", json={**waits, "name": f"n{n}"})).json()["id"] for n in range(5)]
        theirs = (await other.post("/v1/jobs", json=waits)).json()["id"]
        await client.post(f"/v1/jobs/{ids[1]}/cancel")  # is so already
        asked = [*ids, ids[0], theirs, "j-none", "n2"]
        before = house.plane.store.last_seq()
        told = await client.post("/v1/jobs/cancel", json={"jobs": asked}, params={"cause": "enough"})
        found = models.JobsChange.model_validate(told.json())
        assert [job.id for job in found.jobs] == ids
        assert {job.state for job in found.jobs} == {"CANCELLED"}
        assert [(one.code, one.where) for one in found.refused] == [
            ("not-found", theirs), ("not-found", "j-none"), ("not-found", "n2"),
        ]  # fmt: skip
        assert (await other.get(f"/v1/jobs/{theirs}")).json()["state"] == "QUEUED"
        events = [one for one in house.plane.store.events(before) if one.new_state == "CANCELLED"]
        assert [(one.job_id, one.cause) for one in events] == [(ids[n], "enough") for n in (0, 2, 3, 4)]

        over = (await client.post("/v1/jobs", json={**MANIFEST, "command": ["run", "0"]})).json()["id"]
        await client.get(f"/v1/jobs/{over}", params={"wait_s": 60})
        told = await client.post("/v1/jobs/cancel", json={"jobs": [over]})
        assert [one["code"] for one in told.json()["refused"]] == ["conflict"]
        for wrong in ({"jobs": []}, {"jobs": ["x"] * 1001}, {"jobs": [7]}, ["x"]):
            assert (await client.post("/v1/jobs/cancel", json=wrong)).status_code == 422


async def test_explain_names_causes_for_a_waiting_job_and_none_for_one_that_runs(house: House) -> None:
    waiting = await house.submit(seconds=5, resources={"cpus": 500})
    running = await house.submit(seconds=50)
    await asyncio.sleep(1)
    async with house.client("red") as client:
        why = models.ExplanationView.model_validate((await client.get(f"/v1/jobs/{waiting['id']}/explain")).json())
        not_waiting = (await client.get(f"/v1/jobs/{running['id']}/explain")).json()
    assert any(cause.blocking and cause.reason.text for cause in why.causes)
    assert not_waiting["causes"] == []
    assert not_waiting["summary"]


async def test_a_dry_run_stores_nothing_and_says_what_would_block(house: House) -> None:
    async with house.client("red") as client:
        good = await client.post("/v1/manifests/check", json=MANIFEST)
        wide = await client.post("/v1/manifests/check", json={**MANIFEST, "resources": {"cpus": 500}})
        bad = await client.post("/v1/manifests/check", json={"name": "x"})
        assert (await client.get("/v1/jobs")).json()["jobs"] == []
    assert models.CheckView.model_validate(good.json()).remarks == []
    assert models.CheckView.model_validate(wide.json()).remarks != []
    assert bad.status_code == 422


async def test_a_full_queue_is_429_with_a_time_to_come_back(house: House) -> None:
    async with house.client() as admin:
        await admin.patch("/v1/tenants/red", json={"quota": {"queued_jobs": 1}})
    await house.submit(resources={"cpus": 500})
    async with house.client("red") as client:
        response = await client.post("/v1/jobs", json=MANIFEST)
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["code"] == "overloaded"


def archive(**files: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, size in files.items():
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return file.getvalue()


async def test_bundles_are_named_by_content_and_needed_before_the_job(house: House) -> None:
    files = archive(one=1000)
    async with house.client("red") as client:
        first = (await client.post("/v1/bundles", content=files)).json()
        again = (await client.post("/v1/bundles", content=files)).json()
        assert first == again
        assert first["bundle"].startswith("sha256:")
        assert (first["size_bytes"], first["unpacked_bytes"]) == (len(files), 1512)
        known = await client.post("/v1/jobs", json={**MANIFEST, "bundle": first["bundle"]})
        unknown = await client.post("/v1/jobs", json={**MANIFEST, "bundle": "sha256:" + "0" * 64})
    assert known.status_code == 201
    assert unknown.status_code == 422


async def test_a_bundle_is_its_tenants_alone(house: House) -> None:
    files = archive(secret=10)  # once: an archive holds the time at which it was made
    async with house.client("red") as client:
        bundle = (await client.post("/v1/bundles", content=files)).json()["bundle"]
    async with house.client("blue") as client:
        stolen = await client.post("/v1/jobs", json={**MANIFEST, "bundle": bundle})
        assert stolen.status_code == 422
        assert stolen.json()["error"]["what"] == f"tenant blue has no bundle {bundle}"
        assert (await client.post("/v1/bundles?tenant=red", content=files)).status_code == 403
        await client.post("/v1/bundles", content=files)  # whoever has the files may use them
        assert (await client.post("/v1/jobs", json={**MANIFEST, "bundle": bundle})).status_code == 201
    async with house.client() as client:
        assert (await client.post("/v1/bundles?tenant=nobody", content=files)).status_code == 404


async def test_an_archive_that_cannot_be_unpacked_is_refused_at_once(house: House) -> None:
    async with house.client("red") as client:
        for content, what in (
            (b"tar", "the archive cannot be unpacked"),
            (archive(), "the archive is empty"),
            (archive(a=30 << 20), "it unpacks to more than 200 times its size"),
        ):
            refused = await client.post("/v1/bundles", content=content)
            assert refused.status_code == 422
            assert what in refused.json()["error"]["what"]
            assert refused.json()["error"]["where"] == "files"
    assert not list((house.plane.home / "bundles").iterdir())


async def test_a_job_that_can_never_start_is_accepted_with_the_reason(house: House) -> None:
    huge = await house.submit(resources={"accelerators": {"type": "h100", "count": 8}}, ranks=500)
    (warning,) = huge["warnings"]
    assert warning["code"] == "impossible"
    assert "500 x 8 h100" in warning["text"]
    assert (await house.submit())["warnings"] == []
    async with house.client() as admin:
        changed = await admin.patch("/v1/tenants/red", json={"quota": {"cpu_milli": 1000}})
        assert changed.status_code == 200
    (over,) = (await house.submit(resources={"cpus": 2}))["warnings"]
    assert (over["code"], over["facts"]["quota"]) == ("quota", "cpu_milli")
    assert (await house.submit(resources={"cpus": 1}))["warnings"] == []
