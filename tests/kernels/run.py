"""Boots Debian's stock kernel under emulation and runs the privileged eBPF tests there.

    python -m tests.kernels.run [--quick] [--timeout S] [--kernel PACKAGE] [TEST …] [-- PYTEST ARGUMENT …]

No KVM is needed. The kernel comes from the distribution's archive into a cache and is booted on this machine's own
root, read-only: nothing is installed into an image, nothing changes here. Two passes: all tests/privileged/test_ebpf_*.py
on cgroup v2 with all controllers; then, with BTF hidden, those of the bcc loader. `--quick` runs those that quick.txt
lists, whose results do not depend on time. A skip that tests/expected-skips.txt does not list is a failure.

Exit code: 0 passed, 1 a test failed, 2 usage, 3 inconclusive (something is missing, or the emulator died or stood still).
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.kernels import stock
from tests.kernels.stock import CannotStartError, Stock, say

REPO = Path(__file__).resolve().parents[2]
GUEST = Path(__file__).with_name("guest.sh")
QUICK = Path(__file__).with_name("quick.txt")
CHECK_SKIPS = ("--check-skips", "tests/expected-skips.txt")
WITHOUT_BTF = "tests/privileged/test_ebpf_bcc.py"
PASSED, FAILED, INCONCLUSIVE = 0, 1, 3
BOOT_S = 300.0
STILL_S = 300.0
"""A test is stopped after 200 s (guest.sh); for so long nothing at all is printed only where the machine stands still."""


@dataclass(frozen=True)
class Plan:
    """What to run in the guest."""

    tests: tuple[str, ...]
    tests_without_btf: tuple[str, ...]
    pytest_arguments: tuple[str, ...]
    timeout_s: float
    memory: str


def listed(section: str) -> tuple[str, ...]:
    """Return the tests of a section of quick.txt."""
    found: list[str] = []
    current = ""
    for raw in QUICK.read_text().splitlines():
        line = raw.split("#")[0].strip()
        if line.startswith("["):
            current = line.strip("[]")
        elif line and current == section:
            found.append(line)
    return tuple(found)


def plan(options: argparse.Namespace, pytest_arguments: Sequence[str]) -> Plan:
    """Choose what to run, and for how long."""
    tests, without_btf, arguments = chosen(options)
    timeout_s = options.timeout or (900.0 if options.quick else 2400.0)
    return Plan(tests, without_btf, (*pytest_arguments, *arguments), timeout_s, options.memory)


def chosen(options: argparse.Namespace) -> tuple[tuple[str, ...], ...]:
    """Return the tests with BTF and without (those asked for, the short form's, or all), and pytest's arguments."""
    if options.tests:
        return tuple(options.tests), (), ()
    if options.quick:
        return listed("with BTF"), listed("without BTF"), ("-p", "no:randomly", *CHECK_SKIPS)
    found = REPO.glob("tests/privileged/test_ebpf_*.py")
    every = tuple(sorted(str(path.relative_to(REPO)) for path in found))
    return every, (WITHOUT_BTF,), CHECK_SKIPS


def command_line(kernel: Stock, tools: Path, share: Path, memory: str) -> list[str]:
    """Return the command that boots the kernel on this machine's root and runs the guest's script.

    The emulator shall take its CPUs in turns (thread=single). With a thread for each, a CPU that runs code while
    another one patches it may trap for ever: seen in __schedule while a tracepoint was let go.
    """
    script = shlex.join(["bash", str(GUEST), str(share)])
    second_root = "local,path=/,mount_tag=tailcause,security_model=none,readonly=on,multidevs=remap"
    return [
        sys.executable, str(tools / "bin/virtme-run"), "--kimg", str(kernel.image), "--mods", "auto", "--disable-kvm",
        "--force-9p", "--memory", memory, "--cpus", "2", "--rwdir", str(share), "--verbose", "--show-boot-console",
        "--blk-disk", f"scratch={share / 'scratch.img'}", "--script-sh", script,
        "--qemu-opts", "-accel", "tcg,thread=single", "-cpu", "max", "-virtfs", second_root,
    ]  # fmt: skip


def boot(kernel: Stock, tools: Path, wanted: Plan) -> int:
    """Boot, show what the tests print while they print it, and return PASSED or FAILED; raises CannotStartError."""
    with tempfile.TemporaryDirectory(prefix="tailcause-kernels-") as folder:
        share = Path(folder)
        with (share / "scratch.img").open("wb") as disk:
            disk.truncate(4 << 30)  # sparse
        settings: dict[str, Sequence[str]] = {
            "repo": (str(REPO),),
            "python": (sys.executable,),
            "modules": (str(kernel.root),),
            "tests": wanted.tests,
            "tests_without_btf": wanted.tests_without_btf,
            "pytest_arguments": wanted.pytest_arguments,
        }
        lines = [f"{name}=({shlex.join(values)})\n" for name, values in settings.items()]
        (share / "settings").write_text("".join(lines))
        say(f"booting Linux {kernel.release} under emulation (20 to 95 s, then the tests)")
        with emulator(command_line(kernel, tools, share, wanted.memory), tools, share) as guest:
            return follow(guest, share, wanted.timeout_s)


@contextmanager
def emulator(
    command: Sequence[str], tools: Path, share: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the emulator meanwhile, in a process group of its own, all of which ends with it."""
    with (share / "console").open("wb") as console:
        guest = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env={**os.environ, "PYTHONPATH": str(tools)},
            start_new_session=True,
        )
        try:
            yield guest
        finally:
            with suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
            guest.wait(10)


def follow(guest: "subprocess.Popen[bytes]", share: Path, timeout_s: float) -> int:
    """Print the guest's log as it grows, until the guest has written how it ended; raises CannotStartError."""
    began_s = grown_s = time.monotonic()
    shown = 0
    while True:
        ended = guest.poll() is not None
        more = show(share / "log", shown)
        now_s = time.monotonic()
        shown, grown_s = shown + more, now_s if more else grown_s
        if (share / "exit").exists() and (status := (share / "exit").read_text().strip()):
            show(share / "log", shown)
            say(f"ended after {now_s - began_s:.0f} s with status {status}")
            return outcome(int(status))
        silent_s, patience_s = now_s - grown_s, STILL_S if shown else BOOT_S
        if ended or silent_s > patience_s or now_s - began_s > timeout_s:
            words = (share / "console").read_text(errors="replace").splitlines()[-15:]
            sys.stderr.write("\n".join(words) + "\n")
            what = "the emulator ended" if ended else f"silent for {silent_s:.0f} s, not finished"
            raise CannotStartError(f"{what} after {now_s - began_s:.0f} s (console above)")
        time.sleep(0.5)


def outcome(status: int) -> int:
    """Return what the guest's status means: 0, pytest's own, or INCONCLUSIVE of its own set-up."""
    if status == INCONCLUSIVE:
        raise CannotStartError("the guest could not be set up (its last words are above)")
    return FAILED if status else PASSED


def show(log: Path, after: int) -> int:
    """Print what the log has beyond `after` bytes; return how many."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        file.seek(after)
        more = file.read()
    sys.stdout.write(more.decode(errors="replace"))
    sys.stdout.flush()
    return len(more)


def compile_probes() -> bool:
    """Bring the compiled probes up to date; False when they do not compile, CannotStartError without a compiler."""
    built = subprocess.run((sys.executable, "-m", "ebpf.build", "--quiet"), cwd=REPO, check=False)
    if not (REPO / "ebpf/built/sched.bpf.o").exists():
        raise CannotStartError("the probes are not compiled: apt-get install clang libbpf-dev")
    return built.returncode == 0


def main(arguments: Sequence[str]) -> int:
    """Prepare, boot, report."""
    own, pytest_arguments = list(arguments), []
    if "--" in own:
        own, pytest_arguments = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        prog="tests.kernels.run", description="Run the eBPF tests on Debian's stock kernel.",
        epilog="example: python -m tests.kernels.run tests/privileged/test_ebpf_sched.py -- -k matrix",
    )  # fmt: skip
    parser.add_argument("tests", nargs="*", help="tests (default: all of eBPF, in two passes)")
    parser.add_argument("--quick", action="store_true", help="only what quick.txt lists")
    parser.add_argument("--timeout", type=float, help="seconds for everything (2400; 900 if quick)")
    parser.add_argument("--kernel", default=stock.META_PACKAGE, help="package that depends on it")
    parser.add_argument("--memory", default="3G", help="of the emulated machine")
    options = parser.parse_args(own)
    wanted = plan(options, pytest_arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        stock.ensure_tools()
        kernel, tools = stock.fetch(options.kernel), stock.virtme()
        return boot(kernel, tools, wanted) if compile_probes() else FAILED
    except CannotStartError as exc:
        say(f"inconclusive: {exc}")
        return INCONCLUSIVE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
