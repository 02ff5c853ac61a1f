"""Watching: the events of a run, their tail, and the runs of a project."""
