"""Made-up revisions and versions that look like the next real ones."""

import random


def new_revision(rng: random.Random) -> str:
    """Draw a Git SHA."""
    return f"{rng.getrandbits(160):040x}"


def bump(version: str, part: int) -> str:
    """Raise one part of a dotted version (0 major, 1 minor, 2 patch); later parts become 0."""
    parts = [int(word) if word.isdigit() else 0 for word in version.split(".")]
    parts += [0] * (part + 1 - len(parts))
    raised = [*parts[:part], parts[part] + 1, *(0 for _ in parts[part + 1 :])]
    return ".".join(map(str, raised))
