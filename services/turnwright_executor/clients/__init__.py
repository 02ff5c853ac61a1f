"""What clients ask for: tasks, decisions, commands of their own, control of runs."""
