"""Which pages are read: those of the configuration, and those that were found."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from agent.host.paths import HostPaths
from agent.kube.directory import Pods
from agent.servers import annotated
from agent.servers.listening import Listening
from agent.servers.settings import MAX_TARGETS, ServerSettings, Target

_LOOK_EVERY_S = 10.0
_LOCAL_NAMES = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}


class Roster:
    """The targets of now; what is configured comes first, and nothing is read twice."""

    def __init__(
        self,
        settings: ServerSettings,
        pods: Pods,
        paths: HostPaths,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._listening = Listening(paths)
        self._monotonic_s = monotonic_s
        self._due_s = float("-inf")
        self._targets: tuple[Target, ...] = settings.targets
        self.lost: Counter[str] = Counter()
        """Targets that were left out so far, by reason."""

    def targets(self) -> tuple[Target, ...]:
        """Return the targets, looked for anew every ten seconds, as often as pods are."""
        now_s = self._monotonic_s()
        if self._settings.discover and now_s >= self._due_s:
            self._due_s = now_s + _LOOK_EVERY_S
            self._targets = self._looked_for()
        return self._targets

    def is_configured(self, target: Target) -> bool:
        """Tell whether somebody named this target, so that it must answer."""
        return target in self._settings.targets

    def _looked_for(self) -> tuple[Target, ...]:
        unique: dict[tuple[str, int], Target] = {}
        for target in (*self._settings.targets, *self._found()):
            unique.setdefault((_LOCAL_NAMES.get(target.host, target.host), target.port), target)
        beyond = len(unique) - MAX_TARGETS
        if beyond > 0:
            self.lost["too_many_targets"] += beyond
        return tuple(unique.values())[:MAX_TARGETS]

    def _found(self) -> Iterator[Target]:
        yield from annotated.targets(self._pods.pods, on_host=self._listening.reachable)
        yield from self._listening.targets()
