"""For modules whose tests share one stack; the fixtures behind these are in conftest.py.

pytestmark = ON_A_SHARED_STACK  # or on both databases in turn
services = SHARED_SERVICES
"""

import pytest

ON_A_SHARED_STACK = pytest.mark.asyncio(loop_scope="module")
ON_BOTH_DATABASES = [
    ON_A_SHARED_STACK,
    pytest.mark.parametrize("shared_database", ["sqlite", "postgresql"], indirect=True, scope="module"),
]


@pytest.fixture
def services(shared_services):
    return shared_services


SHARED_SERVICES = services
"""In the place of the fixture that gives each test a stack of its own."""
