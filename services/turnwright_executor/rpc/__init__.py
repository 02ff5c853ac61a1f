"""gRPC servicers of the executor."""
