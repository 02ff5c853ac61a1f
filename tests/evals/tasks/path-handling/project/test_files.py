import os
import tempfile
import unittest
from pathlib import Path

from files import Folder


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "data"
        self.root.mkdir()
        self.folder = Folder(self.root)

    def test_a_file_below(self):
        self.assertEqual(str(self.folder.resolve("a/../b.txt")), str(self.root / "b.txt"))

    def test_nothing_outside(self):
        (self.root.parent / "data-private").mkdir()
        os.symlink("/etc", self.root / "link")
        for name in ("../x", "/etc/passwd", "../data-private/x", "link/passwd"):
            with self.subTest(name), self.assertRaises(ValueError):
                self.folder.resolve(name)

    def test_backups_do_not_collide(self):
        self.assertEqual(self.folder.backup_name("a.txt"), "a.bak.txt")
        (self.root / "a.bak.txt").touch()
        self.assertEqual(self.folder.backup_name("a.txt"), "a.bak2.txt")
        (self.root / "a.bak2.txt").touch()
        self.assertEqual(self.folder.backup_name("a.txt"), "a.bak3.txt")

    def test_names_with_several_dots_or_none(self):
        self.assertEqual(self.folder.backup_name("v1.2.tar"), "v1.2.bak.tar")
        self.assertEqual(self.folder.backup_name("Makefile"), "Makefile.bak")
