"""What the component offers to others."""

from __future__ import annotations

import pytest

from shoal import host


@pytest.mark.parametrize("name", host.__all__)
def test_each_name_of_the_face_is_there(name: str) -> None:
    assert getattr(host, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        host.nonsense  # noqa: B018
