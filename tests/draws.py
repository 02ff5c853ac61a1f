"""What tests draw with: the same numbers each time, but for `make fuzz`, which says how to draw them again."""

import os

SEED = int(os.environ.get("TURNWRIGHT_FUZZ_SEED", "0"))
