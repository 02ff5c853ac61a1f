"""How lines of code are counted for the ceilings of packages."""

from ceilings import code_lines

SOURCE = '''"""A docstring
of two lines."""

import os
from pathlib import (
    Path,
)

# A comment.
LIMIT = 3
"""What is said of a name."""


def read(path: Path) -> str:
    """One line."""
    text = """a text
    of two lines"""

    return text + os.sep  # beside code
'''


def test_blank_lines_comments_docstrings_and_imports_are_no_code():
    assert code_lines(SOURCE) == 5


def test_a_module_without_code_has_none():
    assert code_lines('"""Only words."""\n') == 0
