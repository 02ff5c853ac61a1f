"""The service kit: infrastructure that every service shares (server, peers, errors, auth, logs, settings)."""

import os

# A process with gRPC starts child processes: gRPC's fork handlers may crash the child before it calls exec (signals 6
# and 11). The child only calls exec, so nothing needs them. gRPC reads this variable at import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
