"""Which lines of the kernel's log matter to latency, and what they say: a table of rules, the first that fits counts.

Source: the kernel's mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c, block/blk-core.c, drivers/nvme/host/pci.c,
arch/x86/kernel/cpu/mce/core.c and drivers/edac/edac_mc.c; for links the messages of phylib and of network drivers.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from agent.host.kmsg import KernelRecord, parse_xid
from agent.telemetry.keys import (
    CGROUP,
    CPU_NUMBER,
    DEVICE,
    ERROR_TYPE,
    EXECUTABLE,
    GPU_PCI,
    INTERFACE,
    OOM_CONSTRAINT,
    PROCESS_PID,
    STUCK_S,
)
from agent.telemetry.log import Severity
from agent.telemetry.model import AttributeValue

PREFIX = "tailcause.kernel."
_KEYS = {
    "pid": PROCESS_PID,
    "comm": EXECUTABLE,
    "device": DEVICE,
    "interface": INTERFACE,
    "cpu": CPU_NUMBER,
    "seconds": STUCK_S,
    "cgroup": CGROUP,
    "constraint": OOM_CONSTRAINT,
    "error": ERROR_TYPE,
}
_NUMBERS = frozenset(("pid", "cpu", "seconds"))
_REMEMBERED_KILLS = 16


@dataclass(frozen=True)
class KernelEvent:
    """What a line reports."""

    name: str
    severity: Severity
    body: str
    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True)
class Rule:
    """Lines of a kind; the pattern's groups are named as in `_KEYS`."""

    name: str
    severity: Severity
    body: str
    pattern: re.Pattern[str]


def _rule(name: str, severity: Severity, body: str, pattern: str) -> Rule:
    return Rule(PREFIX + name, severity, body, re.compile(pattern))


_LINK = r"(?:^|\s)(?P<interface>[\w.@-]+): (?:NIC )?[Ll]ink (?:is |status definitely )?"
_NAME = r"\((?P<comm>.{1,15})\)"  # which may hold brackets, and has 15 bytes at most
_XID = "xid"

RULES: tuple[Rule, ...] = (
    _rule(
        "cgroup_oom_kill",
        Severity.ERROR,
        "A process was killed because its cgroup reached its memory limit.",
        r"^Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+) " + _NAME,
    ),
    _rule(
        "oom_kill",
        Severity.ERROR,
        "A process was killed because the machine ran out of memory.",
        r"^Out of memory(?: \([^)]*\))?: Kill(?:ed)? process (?P<pid>\d+) " + _NAME,
    ),
    _rule("link_down", Severity.ERROR, "A network link went down.", _LINK + r"[Dd]own\b"),
    _rule("link_up", Severity.INFO, "A network link came up.", _LINK + r"[Uu]p\b"),
    _rule(
        "machine_check",
        Severity.ERROR,
        "The hardware reported a machine check.",
        r"\[Hardware Error\]: (?:CPU (?P<cpu>\d+): Machine Check|Machine check events logged)",
    ),
    _rule(
        "memory_error",
        Severity.WARN,
        "The memory controller reported an error.",
        r"EDAC (?P<device>MC\d+): \d+ (?P<error>CE|UE)\b",
    ),
    _rule(
        "nvme_timeout",
        Severity.ERROR,
        "A request to an NVMe disk timed out.",
        r"nvme (?P<device>nvme\d+): I/O .*\btimeout\b",
    ),
    _rule(
        "nvme_reset",
        Severity.ERROR,
        "An NVMe controller was down or is being reset.",
        r"nvme (?P<device>nvme\d+): (?:controller is down|resetting controller|Device not ready)",
    ),
    _rule(
        "io_error",
        Severity.ERROR,
        "A request to a disk failed.",
        r"(?P<error>I/O|critical \w+|Buffer I/O) error,? (?:on )?(?:dev|device) (?P<device>[\w!-]+)",
    ),
    _rule(
        "hung_task",
        Severity.ERROR,
        "A task has been blocked for long.",
        r"INFO: task (?P<comm>.+):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
    ),
    _rule(
        "soft_lockup",
        Severity.FATAL,
        "A CPU was stuck in the kernel.",
        r"BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s! \[(?P<comm>.+):(?P<pid>\d+)\]",
    ),
    _rule(
        "hard_lockup",
        Severity.FATAL,
        "A CPU was stuck with interrupts off.",
        r"hard LOCKUP on cpu (?P<cpu>\d+)",
    ),
)

_KILL_DETAILS = re.compile(
    r"^oom-kill:constraint=(?P<constraint>\w+),.*?task_memcg=(?P<cgroup>[^,]*),task=.*,pid=(?P<pid>\d+),"
)
NAMES = (PREFIX + _XID, *(rule.name for rule in RULES))


class KernelEvents:
    """Recognises lines; the cgroup of a kill comes in a line of its own, before the kill's."""

    def __init__(self) -> None:
        self._kills: OrderedDict[int, Mapping[str, AttributeValue]] = OrderedDict()

    def recognise(self, record: KernelRecord) -> KernelEvent | None:
        """Return what a record reports, None where it does not matter."""
        text = record.text
        if text.startswith("oom-kill:"):
            self._remember(text)
            return None
        if (xid := _xid(text)) is not None:
            return xid
        for rule in RULES:
            match = rule.pattern.search(text)
            if match is not None:
                attributes = _attributes(match)
                pid = attributes.get(PROCESS_PID)
                details = self._kills.pop(pid, {}) if isinstance(pid, int) else {}
                return KernelEvent(rule.name, rule.severity, rule.body, {**attributes, **details})
        return None

    def _remember(self, text: str) -> None:
        match = _KILL_DETAILS.match(text)
        if match is None:
            return
        attributes = _attributes(match)
        self._kills[int(match["pid"])] = attributes
        if len(self._kills) > _REMEMBERED_KILLS:
            self._kills.popitem(last=False)


def _xid(text: str) -> KernelEvent | None:
    xid = parse_xid(text)
    if xid is None:
        return None
    attributes: dict[str, AttributeValue] = {GPU_PCI: xid.pci, ERROR_TYPE: str(xid.code)}
    if xid.pid is not None:
        attributes[PROCESS_PID] = xid.pid
    body = "The driver of a GPU reported an Xid."
    return KernelEvent(PREFIX + _XID, Severity.ERROR, body, attributes)


def _attributes(match: re.Match[str]) -> dict[str, AttributeValue]:
    return {
        _KEYS[group]: int(value) if group in _NUMBERS else value
        for group, value in match.groupdict().items()
        if value is not None
    }
