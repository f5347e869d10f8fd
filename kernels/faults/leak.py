"""A process that takes memory and never gives it back: `python -m kernels.faults.leak BYTES`."""

import sys
import time

_STEP = 1 << 20
_PAUSE_S = 0.01


def main() -> None:
    """Take up to BYTES in steps, touching every page, then sleep until killed."""
    taken = []
    for _ in range(int(sys.argv[1]) // _STEP):
        taken.append(b"x" * _STEP)
        time.sleep(_PAUSE_S)
    while taken:
        time.sleep(3600)


if __name__ == "__main__":
    main()
