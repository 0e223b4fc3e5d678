"""The shared suite's assertions are explained like those of test modules: import it as `tests.engine.conformance`."""

import pytest

pytest.register_assert_rewrite("tests.engine.conformance")
