"""The provider: one model call at a time, streamed as deltas. Vendors, keys, retries; nothing of runs or entries."""
