"""What the maps of real probes hold is what the kernel says of their descriptors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.probelist import ProbeSettings
from agent.probes import Probes
from tests.support.probe_session import needs_probes

pytestmark = [pytest.mark.privileged, needs_probes]


def maps_of_this_process() -> dict[int, int]:
    """Return map id → bytes of every BPF map that is open here."""
    found = {}
    for entry in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = entry.read_text().splitlines()
        except FileNotFoundError:  # the listing's own descriptor
            continue
        fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if "map_id" in fields and "max_entries" in fields:
            found[int(fields["map_id"])] = int(fields["memlock"])
    return found


@pytest.fixture
def probes() -> Iterator[Probes]:
    """Attach all probes."""
    made = Probes(ProbeSettings())
    made.start()
    yield made
    made.off("the test is over")


def test_every_map_is_somebodys(probes: Probes) -> None:
    """Shared maps count once, for the probe that brought them, and together there is nothing else."""
    by_probe = probes.memory_bytes()
    assert set(by_probe) == set(probes.events())
    assert sum(by_probe.values()) == sum(maps_of_this_process().values())
    assert by_probe["sched"] > 1_000_000 > by_probe["waits"] > 0


def test_a_probe_that_is_off_holds_nothing(probes: Probes) -> None:
    """Its maps are gone from the kernel's own list too, and come back with it."""
    before, held = probes.memory_bytes(), sum(maps_of_this_process().values())
    probes.shed("span", "for the test")
    assert "span" not in probes.memory_bytes()
    assert held - sum(maps_of_this_process().values()) == before["span"] > 0
    assert probes.restore("span", 10)
    assert probes.memory_bytes() == before
