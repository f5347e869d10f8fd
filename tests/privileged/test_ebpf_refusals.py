"""Why the kernel refused a program: the verifier's objection is not a missing permission."""

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from ebpf import capabilities
from ebpf.errors import LoadError, NoPermissionError
from ebpf.libbpf import Library, Object
from tests.support.probe_session import needs_probes

CLANG = shutil.which("clang")
pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(CLANG is None, reason="needs clang"),
]

READS_ANYWHERE = """
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("raw_tp/sched_switch") int reads_anywhere(void *context)
{
	return *(volatile int *)0x1000;
}
"""


@pytest.fixture
def rejected(tmp_path: Path) -> Path:
    """Compile a program that the verifier rejects, with EACCES as it does for memory."""
    source, made = tmp_path / "rejected.bpf.c", tmp_path / "rejected.bpf.o"
    source.write_text(READS_ANYWHERE)
    subprocess.run(
        (str(CLANG), "-O2", "-g", "-target", "bpf", "-c", str(source), "-o", str(made)), check=True
    )
    return made


@pytest.mark.parametrize("lacking", [(), ("CAP_PERFMON",)])
def test_rejected_program_is_not_a_missing_permission(
    rejected: Path, lacking: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever capabilities there are, the error says what the verifier objected to."""
    monkeypatch.setattr(capabilities, "missing", lambda: lacking)
    with Object(Library(), rejected) as opened, pytest.raises(LoadError) as caught:
        opened.load()

    assert not isinstance(caught.value, NoPermissionError)
    assert "invalid mem access" in str(caught.value)


@pytest.mark.parametrize(
    ("lacking", "said"), [((), "security module"), (("CAP_PERFMON",), "need CAP_PERFMON")]
)
def test_refusal_without_a_word_of_the_verifier_is_a_permission(
    rejected: Path, lacking: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A security module says EACCES as well, before the verifier has looked."""
    monkeypatch.setattr(capabilities, "missing", lambda: lacking)
    library = Library()
    monkeypatch.setattr(library.call, "bpf_object__load", lambda _: -errno.EACCES, raising=False)
    with Object(library, rejected) as opened, pytest.raises(NoPermissionError, match=said):
        opened.load()
