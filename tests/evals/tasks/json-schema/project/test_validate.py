import json
import unittest
from pathlib import Path

from validate import errors

SCHEMA = json.loads((Path(__file__).parent / "schema.json").read_text())


class ValidateTest(unittest.TestCase):
    def check(self, *sentences, **document):
        self.assertEqual(errors(document, SCHEMA), list(sentences))

    def test_valid(self):
        self.check(name="ann", age=3)
        self.check(name="ann", age=0, role="writer", tags=["a", "b"])

    def test_required(self):
        self.check("$ has no name", age=3)

    def test_types(self):
        self.check("$.name is no string", name=1, age=3)
        self.check("$.age is no integer", name="ann", age=True)

    def test_minimum_and_enum(self):
        self.check("$.age is less than 0", name="ann", age=-1)
        self.check("$.role is none of reader, writer", name="ann", age=1, role="owner")

    def test_items(self):
        self.check("$.tags[1] is no string", name="ann", age=1, tags=["a", 2])

    def test_unknown_properties(self):
        self.check("$ may not have color", name="ann", age=1, color="red")
