"""The provider service: one model call, streamed."""
