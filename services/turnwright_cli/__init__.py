"""The `turnwright` command: gives work to an executor, shows what happens, takes decisions, serves.

Importing this package loads nothing; each command imports what it needs, so that `turnwright --help` is quick.
"""
