"""The services that tests of the command line share."""

import pytest

from e2e.cli_process import serving

MODELS = ("m", "end", "broken", "lost", "evil", "two", "three", "later", "sh", "ask", "odd", "busy", "edit")


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    """What most tests need is a stack, not one of their own; a bench brings a project and its models' replies."""
    with serving(tmp_path_factory.mktemp("stack"), *MODELS) as root:
        yield root
