"""Database adapters: writer and reader threads, connections, the file and its lock."""
