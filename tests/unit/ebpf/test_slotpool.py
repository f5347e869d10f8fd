"""How slots of cgroups that are gone come back, on folders that stand for cgroups."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpf.baseline import Baseline
from ebpf.cgroupids import CgroupPaths
from ebpf.slotpool import GRACE_S, ROUND_S, SlotPool


class Table:
    """What the pool uses of a BPF map, in memory."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.pushed: list[int] = []

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values."""
        yield from list(self.values.items())

    def delete(self, key: bytes) -> bool:
        """Remove a key."""
        return self.values.pop(key, None) is not None

    def update(self, key: bytes | None, value: bytes) -> None:
        """Set a value, or push it."""
        if key is None:
            self.pushed.append(struct.unpack("=I", value)[0])
        else:
            self.values[key] = value


class Scene:
    """A pool, its maps and a clock."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.slots, self.free = Table(), Table()
        self.names = {0: "other", 1: "idle"}
        self.forgotten: list[set[int]] = []
        self.now_s = 1000.0
        self.pool = SlotPool(CgroupPaths(mount), lambda slots: self.forgotten.append(set(slots)))

    def make(self, name: str, slot: int) -> Path:
        """Make a cgroup that the kernel has given a slot."""
        path = self.mount / name
        path.mkdir()
        self.slots.update(struct.pack("=Q", path.stat().st_ino), struct.pack("=I", slot))
        return path

    def read(self, after_s: float = 0.0) -> None:
        """Let time pass and look."""
        self.now_s += after_s
        self.pool.update(self.slots, self.free, self.names, self.now_s)  # type: ignore[arg-type]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Begin with an empty tree."""
    return Scene(tmp_path)


def test_new_slots_get_names(scene: Scene) -> None:
    """A slot is called by its cgroup's path."""
    scene.make("pod", 2)
    scene.read()
    assert scene.names[2] == "/pod"


def test_slot_newer_than_the_names_is_named_when_asked_for(scene: Scene) -> None:
    """Naming what is new takes nothing back, and the next look still finds it new: a cgroup made again ends the old one."""
    old = scene.make("pod", 2)
    scene.read()
    old.rename(scene.mount.parent / "elsewhere")
    scene.make("pod", 3)
    scene.pool.name_new(scene.slots, scene.names)  # type: ignore[arg-type]
    assert (scene.names[2], scene.names[3], scene.forgotten) == ("/pod", "/pod", [])
    scene.read()
    assert (2 in scene.names, scene.names[3], scene.forgotten) == (False, "/pod", [{2}])


def test_slot_comes_back_after_grace_and_a_round_aside(scene: Scene) -> None:
    """First the numbers stay readable, then they are cleared twice, a round apart, and the slot is free."""
    scene.make("pod", 2)
    scene.read()
    (scene.mount / "pod").rmdir()
    scene.read(ROUND_S)
    assert scene.names[2] == "/pod"
    scene.read(GRACE_S)
    assert (2 in scene.names, scene.slots.values, scene.free.pushed) == (False, {}, [])
    scene.read(ROUND_S)
    assert scene.free.pushed == [2]
    assert scene.forgotten == [{2}, {2}]
    assert scene.pool.recycled == 1


def test_slot_is_not_handed_out_within_a_round(scene: Scene) -> None:
    """A look in between, for a new cgroup, does not shorten the time aside."""
    old = scene.make("pod", 2)
    scene.read()
    old.rename(scene.mount.parent / "elsewhere")
    scene.make("pod", 3)
    scene.read(1.0)
    assert scene.names[3] == "/pod"
    assert 2 not in scene.names
    scene.make("other-pod", 4)
    scene.read(1.0)
    assert scene.free.pushed == []
    scene.read(ROUND_S)
    scene.read(ROUND_S)
    assert scene.free.pushed == [2]


def test_cgroup_never_seen_is_called_by_its_id(scene: Scene) -> None:
    """What is gone before it could be looked up has no path."""
    path = scene.make("brief", 2)
    cgroup_id = path.stat().st_ino
    path.rmdir()
    scene.read()
    assert scene.names[2] == f"(gone:{cgroup_id})"


def test_living_cgroups_keep_their_slots(scene: Scene) -> None:
    """However much time passes."""
    scene.make("pod", 2)
    for _ in range(5):
        scene.read(GRACE_S)
    assert scene.names[2] == "/pod"
    assert scene.forgotten == []


def test_slots_given_anew_by_other_maps_get_new_names(scene: Scene) -> None:
    """After probes were attached again a number may stand for another cgroup."""
    scene.make("one", 2)
    scene.read()
    scene.slots.values.clear()
    scene.make("two", 2)
    scene.read()
    assert scene.names[2] == "/two"


def test_baseline_is_subtracted() -> None:
    """What was counted before a slot changed hands is not the new cgroup's; other slots are whole."""
    baseline: Baseline[tuple[int, int]] = Baseline(lambda pair: pair)
    baseline.forget({(2, 3): (10,), (4, 5): (7,)}, frozenset({3}))
    assert baseline.since({(2, 3): (10,), (4, 5): (8,)}) == {(4, 5): (8,)}
    assert baseline.since({(2, 3): (12,), (4, 5): (8,)}) == {(2, 3): (2,), (4, 5): (8,)}
