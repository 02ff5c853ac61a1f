"""One turn of a loop, from its packet to its verdict: the state machine, and the steps that it selects."""
