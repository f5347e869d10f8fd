"""What a fault may ask of a server by its hook; one JSON line, in force while its connection is open."""

import msgspec


class HoldLock(msgspec.Struct, frozen=True, tag_field="disturb", tag="hold_lock"):
    """Hold the engine's lock for `hold_s`, with pauses of `pause_s`."""

    hold_s: float
    pause_s: float


class CollectGarbage(msgspec.Struct, frozen=True, tag_field="disturb", tag="collect_garbage"):
    """Keep `objects` cyclic objects alive and have the collector go over them all, with pauses of `pause_s`."""

    objects: int
    pause_s: float


class SlowSteps(msgspec.Struct, frozen=True, tag_field="disturb", tag="slow_steps"):
    """Make every step of the runtime take `factor` times as long, as a GPU at lower clocks does."""

    factor: float


class StallSteps(msgspec.Struct, frozen=True, tag_field="disturb", tag="stall_steps"):
    """Let no step of the runtime end, as a GPU does that has fallen off the bus."""


HookRequest = HoldLock | CollectGarbage | SlowSteps | StallSteps


class HookReply(msgspec.Struct, frozen=True):
    """`disturbed` once the request is in force, `undone` once it is not any more, or `refused`."""

    event: str
    error: str = ""
