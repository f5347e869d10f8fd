"""Compiles the probes and the span library into `ebpf/built`, once for each state of the sources.

    python -m ebpf.build [--force] [--quiet]

Needs clang (any that has the BPF target, 12 or newer), libbpf's headers and a C compiler. Without them nothing is built
and the agent says "no BPF, because …": that is a state, not a failure, so the exit code is 0.
"""

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ebpf.errors import NotSupportedError

HERE = Path(__file__).parent
BUILT = HERE / "built"
STAMP = "sources.sha256"
_TARGETS = {"x86_64": "x86", "aarch64": "arm64"}
_HINT = "Debian and Ubuntu: apt-get install clang libbpf-dev"


def sources() -> list[Path]:
    """Return every C file that takes part, sorted."""
    found = [*HERE.glob("include/*.h"), *HERE.glob("probes/*.[ch]"), *HERE.glob("hook/*.[ch]")]
    return sorted(found)


def digest() -> str:
    """Return the hash of all sources, of the machine and of this file."""
    total = hashlib.sha256(platform.machine().encode())
    for path in [*sources(), Path(__file__)]:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def is_current() -> bool:
    """Tell whether what is built comes from the sources as they are."""
    stamp = BUILT / STAMP
    return stamp.exists() and stamp.read_text() == digest()


def build() -> list[Path]:
    """Compile everything; raises NotSupportedError with what is missing."""
    clang, cc = (
        _find("clang", *(f"clang-{n}" for n in range(22, 11, -1))),
        _find("cc", "gcc", "clang"),
    )
    BUILT.mkdir(exist_ok=True)
    made = [_compile_probe(clang, path) for path in sorted(HERE.glob("probes/*.bpf.c"))]
    made.append(_compile_hook(cc))
    (BUILT / STAMP).write_text(digest())
    return made


def _find(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    raise NotSupportedError(f"{names[0]} is not installed ({_HINT})")


def _compile_probe(clang: str, source: Path) -> Path:
    target = _TARGETS.get(platform.machine())
    if target is None:
        raise NotSupportedError(f"no probes for {platform.machine()}: x86_64 and aarch64 are known")
    made = BUILT / source.name.replace(".bpf.c", ".bpf.o")
    multiarch = f"/usr/include/{platform.machine()}-linux-gnu"
    _run([
        clang, "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{target}", "-Wall", "-Wextra", "-Werror",
        "-Wno-unused-parameter", f"-I{multiarch}", "-c", str(source), "-o", str(made),
    ])  # fmt: skip
    return made


def _compile_hook(cc: str) -> Path:
    made = BUILT / "libtailcause_span.so"
    protection = ["-fcf-protection=none"] if platform.machine() == "x86_64" else []
    source = HERE / "hook/tailcause_span.c"
    _run(
        [
            cc,
            "-O2",
            "-fPIC",
            "-shared",
            *protection,
            "-Wall",
            "-Werror",
            str(source),
            "-o",
            str(made),
        ]
    )
    return made


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = (
            "libbpf's headers are missing" if "bpf_helpers.h" in done.stderr else "compiling failed"
        )
        raise NotSupportedError(f"{what} ({_HINT}): {done.stderr.strip()[-600:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is out of date."""
    parser = argparse.ArgumentParser(prog="python -m ebpf.build", description="Compile the probes.")
    parser.add_argument(
        "--force", action="store_true", help="compile even when nothing has changed"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing when all is well")
    options = parser.parse_args(arguments)
    if is_current() and not options.force:
        return 0
    try:
        made = build()
    except NotSupportedError as exc:
        print(f"no BPF, because {exc}", file=sys.stderr)
        return 0
    if not options.quiet:
        print(f"built {len(made)} files in {BUILT}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
