"""The command line of the demo as its parts see it."""

import sys
from dataclasses import dataclass
from pathlib import Path

LIFETIME_S = 600.0
KEPT_LIFETIME_S = 86_400.0
"""Load and faults end by themselves after this long, whatever happens to the demo."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    fault: str
    seed: int
    rate: float
    keep: bool
    as_json: bool
    dry_run: bool
    run_dir: Path | None

    @property
    def lifetime_s(self) -> float:
        """How long load and faults may last."""
        return KEPT_LIFETIME_S if self.keep else LIFETIME_S


def say(text: str) -> None:
    """Tell people something, beside the results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
