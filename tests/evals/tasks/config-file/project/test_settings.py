import os
import tempfile
import unittest
from pathlib import Path

import settings


class SettingsTest(unittest.TestCase):
    def test_the_file_beside_the_module_is_read_from_anywhere(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir("/")
        read = settings.load()
        self.assertEqual((read.hosts, read.retries), (["localhost", "backup.example"], 5))
        self.assertIs(read.verbose, False)
        self.assertEqual(read.timeout, 2.5)

    def test_what_the_file_does_not_say_has_a_default(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some.ini"
            path.write_text("[service]\nretries = 1\n")
            read = settings.load(path)
        self.assertEqual((read.hosts, read.retries, read.verbose, read.timeout), (["localhost"], 1, True, 1.0))
