"""A sandbox host: the files and commands of projects, for executors that are elsewhere.

A process of its own that serves `turnwright.tool.v1.ToolService`. It has no database and no secret of a deployment.
"""
