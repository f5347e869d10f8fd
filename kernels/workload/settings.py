"""The server's knobs: typed, checked once, given as `--set KEY=VALUE`."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from kernels.errors import WorkloadError


class Batching(StrEnum):
    """How requests share a step."""

    CONTINUOUS = "continuous"
    STATIC = "static"


@dataclass(frozen=True)
class Settings:
    """Every knob with its default; `parse` reads them from text."""

    max_running: int = 8
    max_queue: int = 64
    batching: Batching = Batching.CONTINUOUS
    batch_wait_s: float = 0.25
    kv_tokens: int = 4096
    prompt_cache: int = 256
    tenant_index: bool = True
    sql_rows: int = 20_000
    sql_threads: int = 2
    max_body_bytes: int = 1_048_576
    drain_s: float = 3.0
    layers: int = 4
    hidden: int = 320
    heads: int = 5
    context: int = 512
    seed: int = 0


MINIMUM: Mapping[str, float] = {
    "max_running": 1,
    "max_queue": 0,
    "batch_wait_s": 0,
    "kv_tokens": 2,
    "prompt_cache": 0,
    "sql_rows": 1,
    "sql_threads": 1,
    "max_body_bytes": 1024,
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
    if settings.hidden % settings.heads:
        raise WorkloadError(
            f"--set heads={settings.heads}: must divide hidden={settings.hidden} without remainder"
        )
    return settings


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
    Batching: (Batching, "continuous or static"),
}


def _value(name: str, text: str, kind: object) -> object:
    read, wanted = _READERS[kind]
    try:
        value = read(text)
    except (ValueError, KeyError) as error:
        raise WorkloadError(f"--set {name}={text}: want {wanted}") from error
    least = MINIMUM.get(name)
    if least is not None and isinstance(value, int | float) and not value >= least:
        raise WorkloadError(f"--set {name}={text}: want at least {least:g}")
    return value
