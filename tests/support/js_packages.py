"""The OpenTelemetry SDK for JavaScript, installed into the cache once for each version of js_sdk/package.json.

The cache is $TAILCAUSE_CACHE, else ~/.cache/tailcause.
"""

import hashlib
import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

JS = Path(__file__).with_name("js_sdk")
_INSTALL_S = 120.0
_NPM = (
    "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=20000",
)  # fmt: skip


def folder() -> Path:
    """Return where the packages are, or will be."""
    version = hashlib.sha256((JS / "package.json").read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("TAILCAUSE_CACHE", Path.home() / ".cache" / "tailcause"))
    return cache / f"js-sdk-{version}"


def why_missing() -> str:
    """Say what is missing here as things are, without fetching anything; empty where the packages can be used."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    return "" if (folder() / "done").exists() else "npm has not installed the packages"


@lru_cache(maxsize=1)
def why_not() -> str:
    """Install them if they can be; say why they cannot, once for all tests: no registry may be within reach."""
    if not why_missing() or shutil.which("npm") is None or shutil.which("node") is None:
        return why_missing()
    folder().mkdir(parents=True, exist_ok=True)
    shutil.copy(JS / "package.json", folder())
    try:
        done = subprocess.run(
            _NPM, cwd=folder(), check=False, capture_output=True, text=True, timeout=_INSTALL_S
        )
    except subprocess.TimeoutExpired:
        return f"npm has not installed the packages within {_INSTALL_S:g} s"
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "code" in line] or ["no reason given"]
        return f"npm cannot install the packages: {said[0].strip()}"
    (folder() / "done").touch()
    return ""
