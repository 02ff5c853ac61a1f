"""`turnwright acp`: an agent of the Agent Client Protocol, version 1, over standard input and output.

An editor starts the process; a session is a run, and its working directory is the run's project. The agent is a client
like any other: it knows nothing of the services but the client library. Source: rows AP01-AP44, AG01-AG13.
"""
