"""A process that always wants the CPU: `python -m kernels.faults.bystander [CPU …]`."""

import os
import sys


def main() -> None:
    """Compute until killed, on the CPUs given (all without any)."""
    cpus = {int(argument) for argument in sys.argv[1:]}
    if cpus:
        os.sched_setaffinity(0, cpus)
    value = 1
    while True:
        value = (value * 1_103_515_245 + 12_345) % 2_147_483_648


if __name__ == "__main__":
    main()
