"""Puts a ready-made scenario in force.

python -m kernels.fakenvml.stage NAME FILE
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kernels.fakenvml.scenarios import SCENARIOS


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the scenario of that name to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.fakenvml.stage", description="Write a scenario of the fake NVML."
    )
    parser.add_argument("name", choices=sorted(SCENARIOS), help="ready-made scenario")
    parser.add_argument("file", type=Path, help="the file that FAKENVML_SCENARIO names")
    options = parser.parse_args(arguments)
    try:
        SCENARIOS[options.name]().write(options.file)
    except OSError as error:
        sys.stderr.write(f"cannot write {options.file}: {error.strerror}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
