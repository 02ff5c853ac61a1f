"""Use cases of clients: tasks, decisions, commands of their own, control of runs."""
