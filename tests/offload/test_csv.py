"""Files that Polars reads give the frame that pandas gives, or pandas reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.profile import PROFILE

pd = pytest.importorskip("pandas", minversion="3")
pytest.importorskip("polars")
from shoal.offload.frames import csv  # noqa: E402

plain = pd.read_csv


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import polars  # noqa: F401  (it is there already: no file of a test repays the import)

    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=1, threads=2, home=str(tmp_path_factory.mktemp("home"))))
    yield
    shoal.offload.uninstall()


def read(path: Path, text: str) -> str:
    """Read it both ways, and compare; who read it."""
    path.write_text(text)
    PROFILE.clear()
    try:
        expected: Any = plain(path)
    except Exception as error:
        with pytest.raises(type(error)):
            pd.read_csv(path)
        return "plain"
    found = pd.read_csv(path)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert type(found.index) is type(expected.index)
    records = [each for each in PROFILE.records() if each.call == "read_csv"]
    return records[0].backend if records else "small"


WORDS = ("ab", "x y", "", "NA", "nan", "None", "é", "-", "no 1", "a'b")
CELLS: tuple[Any, ...] = (
    st.integers(-(2**40), 2**40).map(str),
    st.integers(0, 10**6).map(lambda each: str(each / 100)),
    st.sampled_from(WORDS),
    st.sampled_from(("1", "", "7")),
    st.sampled_from(("1", "1.5", " 2", "3 ", "x", "True", "1e3", "inf", "+4", "0x1", "1_0", "NA", '"q"')),
    st.sampled_from(("True", "False")),
)


@given(st.data())
def test_any_file_is_as_pandas_reads_it(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*kinds), min_size=20, max_size=60))
    odd = data.draw(st.sampled_from(("", "", "", "\n", " \n", "1,2,3,4,5,6\n", "5\n", "\r\n")))
    header = ",".join(f"c{number}" for number in range(len(kinds)))
    lines = [",".join(row) + "\n" for row in rows]
    where = data.draw(st.integers(0, len(lines)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "_SAMPLE", data.draw(st.sampled_from((100, 1 << 16))))
        read(tmp_path_factory.mktemp("csv") / "t.csv", header + "\n" + "".join((*lines[:where], odd, *lines[where:])))


@pytest.mark.parametrize(
    ("lines", "backend"),
    [
        (lambda i: f"{i},{i / 4},w{i % 7}", "polars"),
        (lambda i: f"{i},{i / 4},{'' if i % 3 else 'NA'}w", "polars"),
        (lambda i: f"{i},,{['a', 'NA', ''][i % 3]}", "polars"),
        (lambda i: f"{i if i != 9_000 else ''},1,w", "plain"),  # the first column: it could be a blank line
        (lambda i: f"{i},{i if i != 9_000 else ''},w", "polars"),  # a whole column of floating point numbers by it
        (lambda i: f"{i},1,{i if i == 9_000 else 'w'}", "plain"),  # a number among words
        (lambda i: f"{i},{1 if i != 9_000 else 'x'},w", "plain"),  # a word among numbers
        (lambda i: f'{i},1,"w"', "plain"),
        (lambda i: f"{i},{i % 2 == 0},w", "plain"),
        (lambda i: f"{i},1,w\r", "plain"),
        (lambda i: f"{i},{(i + 0.5) / 7e-9},w", "polars"),
    ],
)
def test_who_reads_it(tmp_path: Path, lines: Any, backend: str) -> None:
    text = "i,f,s\n" + "".join(lines(i) + "\n" for i in range(20_000))
    assert read(tmp_path / "t.csv", text) == backend


def test_options_and_other_sources_stay_with_pandas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,x\n" * 5000)
    PROFILE.clear()
    assert pd.read_csv(path, dtype={"a": float}).a.dtype == np.float64
    with path.open() as file:
        assert len(pd.read_csv(file)) == 5000
    with pytest.raises(FileNotFoundError):
        pd.read_csv(tmp_path / "none.csv")
    assert not [each for each in PROFILE.records() if each.call == "read_csv"]


def test_uninstall_gives_pandas_its_reader_back() -> None:
    settings = OffloadSettings(threshold=1)
    assert pd.read_csv is not plain
    shoal.offload.uninstall()
    try:
        assert pd.read_csv is plain
    finally:
        shoal.offload.install(settings)
