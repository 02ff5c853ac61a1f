"""Use cases of the store, one transaction for each rpc: functions of a connection that never await."""
