"""Files below one folder."""

import os


class Folder:
    def __init__(self, root):
        self.root = str(root)

    def resolve(self, name):
        """The path of a file below the folder. Raises ValueError for anything outside."""
        path = os.path.normpath(os.path.join(self.root, name))
        if not path.startswith(self.root):
            raise ValueError(f"{name} is outside")
        return path

    def backup_name(self, name):
        """The name for a backup of a file, which no file has yet: `a.txt` becomes `a.bak.txt`, then `a.bak2.txt`."""
        stem, _, ending = name.partition(".")
        return f"{stem}.bak.{ending}"
