"""Commands on this host: their processes, sandbox, output, and where a loop is placed."""
