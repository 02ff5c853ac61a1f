"""The `turnwright` command: gives tasks to an executor, shows events, takes decisions, and runs services.

Importing this package loads nothing; each command imports what it needs, so that `turnwright --help` is fast.
"""
