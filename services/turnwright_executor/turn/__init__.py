"""One turn of a loop, from its packet to its verdict: what comes next, and how each step is carried out."""
