"""The service kit: what a process of ours needs besides its own job (server, peers, errors, auth, logs, settings)."""

import os

# A process with gRPC in it starts commands: what gRPC does in a fork may crash the child before it becomes the
# command (signals 6 and 11). The child only calls exec, so nothing needs that. gRPC reads this while it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
