"""The Model Context Protocol: the agent as a server of tools, for agents of others.

A process of its own, with the extra `mcp`: nothing of the services imports it, and it is a client of the executor.
"""
