"""What counts as undisturbed."""

from __future__ import annotations

import pytest

from shoal.host.sensors.senses import Undisturbed
from shoal.host.types import Missing


def test_nothing_is_known_before_a_moment_without_best_effort_work() -> None:
    assert isinstance(Undisturbed().reading(1.0).value, Missing)


def test_the_median_of_the_last_five_is_believed() -> None:
    known = Undisturbed()
    for at, value in enumerate((9.0, 1.0, 2.0, 3.0, 4.0, 50.0)):
        known.add(value, float(at), everywhere=True)
    reading = known.reading(7.0)
    assert reading.value == 3.0
    assert reading.age_s == 2.0


def test_of_two_the_lower_is_believed() -> None:
    known = Undisturbed()
    known.add(2.0, 0.0, everywhere=True)
    known.add(1.0, 1.0, everywhere=True)
    assert known.reading(1.0).value == 1.0


def test_moments_without_any_best_effort_work_replace_those_without_it_in_the_same_domain() -> None:
    known = Undisturbed()
    known.add(2.0, 0.0, everywhere=False)
    assert known.reading(0.0).value == 2.0
    known.add(1.0, 1.0, everywhere=True)
    known.add(3.0, 2.0, everywhere=False)
    assert known.reading(2.0).value == 1.0
    assert known.reading(2.0).age_s == pytest.approx(1.0)
