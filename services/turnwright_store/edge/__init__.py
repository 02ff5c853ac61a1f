"""The database itself: one writing thread, reading threads, the file and its lock."""
