"""Which build of the product this is."""

import json
import re
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "tailcause"
_HEX = re.compile(r"[0-9a-f]{40,64}")
_CHECKOUT = Path(__file__).parents[1]


def version() -> str:
    """Return the installed version of the product."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def revision(checkout: Path = _CHECKOUT) -> str:
    """Return the Git commit that was installed, or that is checked out; empty where nobody knows.

    Source: PEP 610, `vcs_info` in direct_url.json.
    """
    return _installed_from() or _checked_out(checkout / ".git")


def _installed_from() -> str:
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return ""


def _checked_out(folder: Path) -> str:
    try:
        head = (folder / "HEAD").read_text(encoding="ascii").strip()
        if head.startswith("ref: "):
            head = _reference(folder, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return ""
    return head if _HEX.fullmatch(head) else ""


def _reference(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="ascii").strip()
    except OSError:
        packed = (folder / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
