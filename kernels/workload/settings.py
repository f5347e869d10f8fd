"""The server's knobs: typed, checked once, given as `--set KEY=VALUE`."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from kernels.errors import WorkloadError
from kernels.workload.addresses import NO_DATABASE, PostgresUrl, cache_place, postgres_url
from kernels.workload.kv_blocks import BLOCK_TOKENS


class Batching(StrEnum):
    """How requests share a step."""

    CONTINUOUS = "continuous"
    STATIC = "static"
    DYNAMIC = "dynamic"
    SHAPE = "shape"


class StepFirst(StrEnum):
    """Who gets the tokens of a step first; with `prefill` nobody decodes while there is a prompt to prefill."""

    DECODE = "decode"
    PREFILL = "prefill"


class PrefillOrder(StrEnum):
    """Whose prompt comes first, among equally urgent ones."""

    ARRIVAL = "arrival"
    SHORTEST = "shortest"


@dataclass(frozen=True)
class Settings:
    """Every knob with its default; `parse` reads them from text."""

    max_running: int = 8
    max_queue: int = 64
    batching: Batching = Batching.CONTINUOUS
    batch_wait_s: float = 0.25
    preferred_batch: int = 4
    max_queue_delay_s: float = 0.02
    shape_tokens: int = 512
    step_tokens: int = 160
    step_first: StepFirst = StepFirst.DECODE
    prefill_order: PrefillOrder = PrefillOrder.ARRIVAL
    kv_tokens: int = 4096
    prefix_cache: bool = True
    prompt_cache: int | str = 256
    cache_timeout_s: float = 0.25
    tenant_db: PostgresUrl = NO_DATABASE
    tenant_index: bool = True
    sql_rows: int = 20_000
    sql_threads: int = 2
    sql_timeout_s: float = 2.0
    sql_slow_s: float = 0.1
    adapters: int = 0
    adapter_kib: int = 1024
    adapter_direct: bool = False
    warm_up: bool = True
    max_body_bytes: int = 1_048_576
    max_in_flight: int = 1024
    send_buffer_bytes: int = 65_536
    client_wait_s: float = 30.0
    drain_s: float = 3.0
    layers: int = 4
    hidden: int = 320
    heads: int = 5
    context: int = 512
    seed: int = 0
    weights: str = ""


MINIMUM: Mapping[str, float] = {
    "max_running": 1,
    "max_queue": 0,
    "batch_wait_s": 0,
    "preferred_batch": 1,
    "max_queue_delay_s": 0,
    "shape_tokens": 1,
    "step_tokens": 17,
    "kv_tokens": 16,
    "prompt_cache": 0,
    "cache_timeout_s": 0.001,
    "sql_rows": 1,
    "sql_threads": 1,
    "sql_timeout_s": 0.01,
    "sql_slow_s": 0,
    "adapters": 0,
    "adapter_kib": 8,
    "max_body_bytes": 1024,
    "max_in_flight": 1,
    "send_buffer_bytes": 4096,
    "client_wait_s": 0,
    "drain_s": 0,
    "layers": 1,
    "hidden": 1,
    "heads": 1,
    "context": 2,
    "seed": 0,
}


def parse(pairs: Sequence[str]) -> Settings:
    """Read settings from `KEY=VALUE` texts; later ones win. Raises WorkloadError with what to do."""
    kinds = {field.name: field.type for field in fields(Settings)}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise WorkloadError(f"--set {pair}: write KEY=VALUE")
        if name not in kinds:
            raise WorkloadError(f"--set {name}: unknown setting{_suggestion(name, list(kinds))}")
        values[name] = _value(name, text, kinds[name])
    settings = Settings(**values)  # type: ignore[arg-type]
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    """Raise WorkloadError where settings do not go together."""
    if settings.hidden % settings.heads:
        raise WorkloadError(
            f"--set heads={settings.heads}: must divide hidden={settings.hidden} without remainder"
        )
    least = settings.max_running + BLOCK_TOKENS
    if settings.step_tokens < least:
        raise WorkloadError(
            f"--set step_tokens={settings.step_tokens}: want at least {least}, "
            f"one token for each of max_running={settings.max_running} rows and a block of a prompt"
        )


def as_text(settings: Settings) -> dict[str, str]:
    """Every setting as the text that `parse` reads."""
    return {field.name: _text(getattr(settings, field.name)) for field in fields(settings)}


def _text(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _on_off(text: str) -> bool:
    return {"on": True, "off": False}[text]


_READERS: Mapping[object, tuple[Callable[[str], object], str]] = {
    int: (int, "a whole number"),
    float: (float, "a number"),
    bool: (_on_off, "on or off"),
    str: (str, "text"),
    PostgresUrl: (
        postgres_url,
        "postgresql://… without a password: put it into ~/.pgpass or PGPASSWORD",
    ),
    int | str: (cache_place, "a number or redis://… without a password: put it into REDISCLI_AUTH"),
    **{kind: (kind, " or ".join(kind)) for kind in (Batching, StepFirst, PrefillOrder)},
}


def _value(name: str, text: str, kind: object) -> object:
    read, wanted = _READERS[kind]
    try:
        value = read(text)
    except (ValueError, KeyError) as error:
        # What follows the scheme may hold a password.
        shown = f"{text.partition('://')[0]}://…" if "://" in text else text
        raise WorkloadError(f"--set {name}={shown}: want {wanted}") from error
    least = MINIMUM.get(name)
    if least is not None and isinstance(value, int | float) and not value >= least:
        raise WorkloadError(f"--set {name}={text}: want at least {least:g}")
    return value
