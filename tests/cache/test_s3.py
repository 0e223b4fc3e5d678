"""Objects of S3, read through the cache from a real server behind a slow network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.sources import source_of
from shoal.core import Forbidden, Invalid, NotFound
from tests.cache.kit import CHUNK, Delay, cache

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")

KEYS = {"key": "AKIAEXAMPLE", "secret": "secret"}


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    made = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="a", aws_secret_access_key="b",
        region_name="us-east-1",
    )  # fmt: skip
    made.create_bucket(Bucket="data")
    made.port = port
    yield made
    server.stop()


@pytest.fixture
def slow(s3: Any) -> Iterator[dict[str, Any]]:
    """The options of a file system that is 5 ms away."""
    made = Delay(s3.port, 0.005)
    yield {**KEYS, "endpoint_url": f"http://127.0.0.1:{made.port}"}
    made.close()


def test_objects_and_folders_of_s3(s3: Any, slow: dict[str, Any], tmp_path: Path) -> None:
    big = os.urandom(2 * CHUNK + 99)
    for key, data in (("set/a b%2e", b"one"), ("set/sub/c", b"two"), ("set/big", big), ("zero", b"")):
        s3.put_object(Bucket="data", Key=key, Body=data)
    with cache(tmp_path / "c") as daemon:
        fs = ShoalFileSystem(
            target_protocol="s3", target_options=slow, cache_root=str(tmp_path / "c"), tenant="ann",
            skip_instance_cache=True,
        )  # fmt: skip
        for _ in range(2):
            assert fs.cat_file("data/set/a b%2e") == b"one"
            assert fs.cat_file("s3://data/set/sub/c") == b"two"
            assert fs.cat_file("data/set/big") == big
            assert fs.cat_file("data/zero") == b""
        assert fs.ls("data/set", detail=False) == ["data/set/a b%2e", "data/set/big", "data/set/sub"]
        assert fs.find("data/set") == ["data/set/a b%2e", "data/set/big", "data/set/sub/c"]
        assert fs.info("data/set/big")["size"] == len(big)
        with pytest.raises(FileNotFoundError):
            fs.open("data/none")
        assert daemon.cache.accounts["ann"].loads == 6
        sets = {one["set"].rsplit("/", 2)[-1]: one["objects"] for one in daemon.cache.status()["sets"]}
        assert sets == {"set": 2, "sub": 1, "data": 1}


@pytest.mark.slow
def test_a_multipart_object_has_a_tag_that_is_no_md5(s3: Any, slow: dict[str, Any], tmp_path: Path) -> None:
    part = os.urandom(5 << 20)
    upload = s3.create_multipart_upload(Bucket="data", Key="multi")["UploadId"]
    told = [
        {"PartNumber": at, "ETag": s3.upload_part(
            Bucket="data", Key="multi", PartNumber=at, UploadId=upload, Body=part)["ETag"]}
        for at in (1, 2)
    ]  # fmt: skip
    s3.complete_multipart_upload(Bucket="data", Key="multi", UploadId=upload, MultipartUpload={"Parts": told})
    with cache(tmp_path / "c", size=16 << 20):
        fs = ShoalFileSystem(
            target_protocol="s3", target_options=slow, cache_root=str(tmp_path / "c"), skip_instance_cache=True
        )
        assert fs.info("data/multi")["ETag"].endswith('-2"')
        assert fs.cat_file("data/multi") == part * 2


def test_another_endpoint_is_another_object(slow: dict[str, Any]) -> None:
    one, other = (source_of("s3://data/x", {**slow, "endpoint_url": url}, 0) for url in ("http://a", "http://b"))
    assert one.url != other.url
    assert source_of("s3://data/x", {**slow, "key": "other"}, 0).url == source_of("s3://data/x", slow, 0).url


def test_what_s3_refuses_is_refused(slow: dict[str, Any]) -> None:
    with pytest.raises(NotFound):
        source_of("s3://data/nothing", slow, 0).head()
    with pytest.raises(NotFound):
        list(source_of("s3://nobucket/x", slow, 0).children())
    for url, options in (("s3:///x", slow), ("s3://data/x", {"magic": 1})):
        with pytest.raises(Invalid):
            source_of(url, options, 0)
    with pytest.raises(Forbidden):
        source_of("s3://data/x", {**slow, "endpoint_url": "http://169.254.169.254"}, 0).head()
