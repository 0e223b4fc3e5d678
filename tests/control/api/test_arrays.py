"""Job arrays and dependencies by the API."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.contract import models

from .conftest import House

pytestmark = pytest.mark.virtual_time

SWEEP: dict[str, Any] = {"name": "sweep", "command": ["run", "1000"], "array": "0-9%2"}


async def test_an_array_is_submitted_shown_and_listed_as_one(house: House) -> None:
    async with house.client("red") as client:
        response = await client.post("/v1/jobs", json=SWEEP, headers={"idempotency-key": "k"})
        told = response.json()
        assert response.status_code == 201
        assert set(told) == set(models.SubmittedView.model_fields)
        array = told["array"]
        assert (told["array_id"], told["array_index"], array["id"]) == (array["id"], 0, array["id"])
        assert (array["indices"], array["tasks"], array["limit"]) == ("0-9%2", 10, 2)
        again = await client.post("/v1/jobs", json=SWEEP, headers={"idempotency-key": "k"})
        assert (again.status_code, again.json()["array"]["id"]) == (200, array["id"])
        shown = (await client.get("/v1/arrays/sweep")).json()
        assert set(shown) == set(models.ArrayView.model_fields)
        assert sum(shown["states"].values()) == 10
        listed = (await client.get("/v1/jobs", params={"fold": "true"})).json()
        assert ([one["id"] for one in listed["arrays"]], listed["jobs"]) == ([array["id"]], [])
        assert len((await client.get("/v1/jobs")).json()["jobs"]) == 10
        page = (await client.get("/v1/jobs", params={"fold": "true", "limit": 1})).json()
        assert page["next"] == array["id"]
        wrong = await client.get("/v1/jobs", params={"fold": "true", "state": "RUNNING"})
        assert wrong.status_code == 422
        task = (await client.get(f"/v1/jobs/{array['id']}-7")).json()
        assert (task["name"], task["array_index"]) == ("sweep-7", 7)
    async with house.client("blue") as other:
        assert (await other.get(f"/v1/arrays/{array['id']}")).status_code == 404
        assert (await other.post(f"/v1/arrays/{array['id']}/cancel")).status_code == 404


async def test_a_part_of_an_array_is_changed(house: House) -> None:
    async with house.client("red") as client:
        array = (await client.post("/v1/jobs", json=SWEEP)).json()["array"]["id"]
        url = f"/v1/arrays/{array}"
        done = (await client.post(f"{url}/suspend", params={"tasks": "7-9"})).json()
        assert done["changed"] == [f"{array}-{n}" for n in (7, 8, 9)]
        assert done["array"]["states"]["SUSPENDED"] == 3
        assert (await client.post(f"{url}/suspend", params={"tasks": "7-9"})).json()["changed"] == []
        done = (await client.post(f"{url}/resume")).json()
        assert done["changed"] == [f"{array}-{n}" for n in (7, 8, 9)]
        done = (await client.post(f"{url}/cancel", params={"tasks": "5,9", "cause": "enough"})).json()
        assert (done["changed"], done["array"]["states"]["CANCELLED"]) == ([f"{array}-5", f"{array}-9"], 2)
        assert house.plane.job(f"{array}-5").message == "enough"
        explained = (await client.get(f"{url}/explain")).json()
        assert [cause["cause"] for cause in explained["causes"]] == ["array"]
        for tasks, status in (("10", 404), ("x", 422), ("1%2", 200)):
            assert (await client.post(f"{url}/cancel", params={"tasks": tasks})).status_code == status
        await client.post(f"{url}/cancel")
        over = (await client.get(url, params={"wait_s": 60})).json()
        assert over["states"] == {"CANCELLED": 10}


async def test_a_dry_run_says_which_job_is_not_there_to_wait_for(house: House) -> None:
    asked = {"name": "next", "command": ["run", "1"], "after": [{"job": "first", "when": "failure"}]}
    async with house.client("red") as client:
        remarks = (await client.post("/v1/manifests/check", json=asked)).json()["remarks"]
        assert [(one["code"], one["facts"]["where"]) for one in remarks] == [("dependency-missing", "after[0].job")]
        refused = await client.post("/v1/jobs", json=asked)
        assert (refused.status_code, refused.json()["error"]["where"]) == (404, "after[0].job")
        await client.post("/v1/jobs", json={"name": "first", "command": ["run", "1000"]})
        assert (await client.post("/v1/manifests/check", json=asked)).json()["remarks"] == []
        told = (await client.post("/v1/jobs", json=asked)).json()
        shown = (await client.get(f"/v1/jobs/{told['id']}")).json()
        assert shown["reason"]["code"] == "dependency"
        explained = (await client.get(f"/v1/jobs/{told['id']}/explain")).json()
        assert [cause["cause"] for cause in explained["causes"]] == ["dependency"]
