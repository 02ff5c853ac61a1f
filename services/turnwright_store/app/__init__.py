"""What each rpc does, as one transaction: functions of a connection that never await."""
