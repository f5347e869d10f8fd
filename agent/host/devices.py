"""Names of block devices by their numbers, as cgroups write them."""

from agent.host.files import read_text
from agent.host.paths import HostPaths


class DiskNames:
    """Knows `vda` for `254:0`; reads the table again when it is asked for a number that it has not seen."""

    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._names: dict[str, str] = {}

    def __call__(self, numbers: str) -> str:
        """Return the name of a device, or its numbers where it has none (any more)."""
        if numbers not in self._names:
            self._names.update(self._read())
            self._names.setdefault(numbers, numbers)
        return self._names[numbers]

    def _read(self) -> dict[str, str]:
        """Source: Documentation/admin-guide/iostats.rst; the first columns are major, minor, name."""
        try:
            rows = [
                line.split() for line in read_text(self._paths.procfs / "diskstats").splitlines()
            ]
        except OSError:
            return {}
        return {f"{row[0]}:{row[1]}": row[2] for row in rows if len(row) > 2}
