"""Lets a probe forget a cgroup, as the session does when the cgroup is gone and its slot goes to another."""

from ebpf.probe import Forgets
from ebpf.session import Session


def forget(session: Session, probe: str, cgroup: str) -> None:
    """Clear what a probe has counted under a cgroup's slot."""
    assert session._kernel is not None
    slots = frozenset(slot for slot, path in session._kernel.slot_paths.items() if path == cgroup)
    assert slots
    found = session.slots[probe].probe
    assert isinstance(found, Forgets)
    found.forget(slots)
