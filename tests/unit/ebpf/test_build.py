"""Building: once for each state of the sources, and without a compiler a state, not a failure."""

import platform
import shutil
from pathlib import Path

import pytest

from ebpf import build
from ebpf.errors import NotSupportedError

HAS_COMPILERS = bool(shutil.which("clang") and shutil.which("cc"))
HAS_LIBBPF = Path("/usr/include/bpf/bpf_helpers.h").exists()

needs_compilers = pytest.mark.skipif(
    not (HAS_COMPILERS and HAS_LIBBPF), reason="needs clang, a C compiler and libbpf-dev"
)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build into a folder of the test's own."""
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    return tmp_path / "built"


def times(folder: Path) -> dict[str, int]:
    """Return when each file was last written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


@needs_compilers
@pytest.mark.slow
def test_second_build_does_nothing(built: Path) -> None:
    """What is built from the sources as they are is left alone; every probe and the library are there."""
    first, after_first = build.main(["--quiet"]), times(built)
    second, after_second = build.main(["--quiet"]), times(built)
    expected = {path.name.replace(".c", ".o") for path in build.HERE.glob("probes/*.bpf.c")}
    assert (first, second) == (0, 0)
    assert after_first == after_second
    assert {*expected, "libtailcause_span.so", build.STAMP} <= set(after_first)


def test_stamp_of_other_sources_is_out_of_date(built: Path) -> None:
    """A build of other sources does not count as current."""
    built.mkdir()
    (built / build.STAMP).write_text("0" * 64)
    assert not build.is_current()


def test_stamp_of_these_sources_is_current(built: Path) -> None:
    """A build of these sources does."""
    built.mkdir()
    (built / build.STAMP).write_text(build.digest())
    assert build.is_current()


def test_without_a_compiler(
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No clang: one line that says what to install, exit status 0, and nothing that looks built."""
    monkeypatch.setenv("PATH", str(tmp_path))
    status = build.main([])
    said = capsys.readouterr().err
    assert status == 0
    assert said.startswith("no BPF, because clang is not installed (")
    assert "apt-get install clang libbpf-dev" in said
    assert said.count("\n") == 1
    assert not (built / build.STAMP).exists()


def test_compiler_that_fails(
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A clang without libbpf's headers: the reason names them, exit status 0, not current."""
    for name in ("clang", "cc"):
        fake = tmp_path / name
        fake.write_text(
            "#!/bin/sh\necho \"fatal error: 'bpf/bpf_helpers.h' file not found\" >&2\nexit 1\n"
        )
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    status = build.main([])
    assert status == 0
    assert "libbpf's headers are missing" in capsys.readouterr().err
    assert not (built / build.STAMP).exists()


def test_unknown_machine(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that there are no probes for is named."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    source = min(build.HERE.glob("probes/*.bpf.c"))
    with pytest.raises(NotSupportedError, match="riscv64"):
        build._compile_probe("clang", source)
