"""Ring and segments."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agent.telemetry.model import Link, Point, Span, SpanKind
from detector.config import StoreConfig
from detector.store.embedded import Store
from detector.store.ring import Ring
from detector.store.segments import Segments
from tests.unit.detector.conftest import RequestMaker

STEP = Span(
    trace_id="ab" * 16,
    span_id="cd" * 8,
    parent_span_id="",
    name="engine step",
    kind=SpanKind.INTERNAL,
    start_unix_ns=100_000_000_000,
    end_unix_ns=100_010_000_000,
    attributes={"i": 3, "f": 0.5, "b": True, "s": "x", "many": ("a", "b")},
    links=(Link("01" * 16, "02" * 8), Link("03" * 16, "04" * 8)),
    resource={"service.name": "chat"},
)
POINT = Point("container.cpu.time", 1.5, 100_000_000_000, {"a": "b"}, {"host.name": "n"}, True)


def test_answers_are_ordered_and_cut_by_end(request_span: RequestMaker) -> None:
    """[start, end) by the time a span ended, sorted by its start."""
    ring = Ring(StoreConfig())
    ring.add_spans([request_span(t, 0.5, number=int(t)) for t in (103.0, 101.0, 102.0, 104.0)], 104)
    ends = [span.end_unix_ns / 1e9 for span in ring.spans(101.0, 104.0)]
    assert ends == [101.0, 102.0, 103.0]


def test_a_span_is_taken_once(request_span: RequestMaker) -> None:
    """Ingest is idempotent by trace and span id."""
    ring = Ring(StoreConfig())
    span = request_span(100.0, 0.5)
    assert ring.add_spans([span, span], 100.0) == [span]
    assert ring.add_spans([span], 100.0) == []
    assert ring.taken["duplicate_spans"] == 2


def test_what_a_full_ring_loses_early_is_counted(request_span: RequestMaker) -> None:
    """The oldest go first."""
    ring = Ring(StoreConfig(max_spans=3))
    ring.add_spans([request_span(100.0 + i, 0.1, number=i) for i in range(5)], 105.0)
    assert ring.dropped == {"spans_ring_full": 2}
    assert [s.end_unix_ns // 10**9 for s in ring.spans(0, 200)] == [102, 103, 104]


def test_what_falls_out_by_age_is_no_loss(request_span: RequestMaker) -> None:
    """It has been there for as long as promised."""
    ring = Ring(StoreConfig(max_age_s=60))
    ring.add_spans([request_span(100.0, 0.1)], 100.0)
    ring.add_spans([request_span(170.0, 0.1, number=1)], 170.0)
    assert len(ring.spans(0, 1000)) == 1
    assert ring.dropped == {}


@pytest.mark.parametrize("end_unix_s", [10.0, 2000.0])
def test_a_wrong_clock_is_refused_and_counted(
    request_span: RequestMaker, end_unix_s: float
) -> None:
    """A span from the far past or the future would distort windows."""
    ring = Ring(StoreConfig())
    assert ring.add_spans([request_span(end_unix_s, 0.1)], 1000.0) == []
    assert ring.dropped == {"spans_out_of_time": 1}


def test_points_beyond_the_bound_are_counted() -> None:
    """The same for metrics."""
    ring = Ring(StoreConfig(max_points=1))
    ring.add_points([POINT, POINT], 100.0)
    assert ring.dropped == {"points_ring_full": 1}


def test_segments_give_back_what_was_written(tmp_path: Path) -> None:
    """Attributes keep their types, links their order."""
    segments = Segments(tmp_path, cap_bytes=1 << 30)
    segments.write([STEP], [POINT])
    assert list(segments.recent_spans(0)) == [STEP]
    assert list(segments.recent_points(0)) == [POINT]


def test_segments_are_zstd_parquet(tmp_path: Path) -> None:
    """Other tools read them."""
    Segments(tmp_path, cap_bytes=1 << 30).write([STEP], [])
    (path,) = tmp_path.glob("*.parquet")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_old_segments_are_not_read(tmp_path: Path) -> None:
    """Only those that reach past the asked time."""
    segments = Segments(tmp_path, cap_bytes=1 << 30)
    segments.write([STEP], [])
    assert list(segments.recent_spans(STEP.end_unix_ns + 1)) == []


def test_the_oldest_segments_make_room(tmp_path: Path, request_span: RequestMaker) -> None:
    """The cap holds, and what was deleted is counted."""
    segments = Segments(tmp_path, cap_bytes=12_000)
    for index in range(6):
        segments.write([request_span(100.0 + index, 0.1, number=index)], [])
    kept = sorted(tmp_path.glob("*.parquet"))
    assert sum(path.stat().st_size for path in kept) <= 12_000
    assert segments.dropped["segments_over_cap"] == 6 - len(kept)
    assert [s.end_unix_ns // 10**9 for s in segments.recent_spans(0)][-1] == 105


def test_a_broken_segment_is_skipped_and_counted(tmp_path: Path) -> None:
    """A half-written file must not keep the service from starting."""
    segments = Segments(tmp_path, cap_bytes=1 << 30)
    segments.write([STEP], [])
    broken = tmp_path / f"spans-{0:020d}-{10**18:020d}-000009.parquet"
    broken.write_bytes(b"PAR1 no")
    assert list(segments.recent_spans(0)) == [STEP]
    assert segments.dropped["segments_unreadable"] == 1


async def test_an_unwritable_disk_costs_history_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_span: RequestMaker
) -> None:
    """One error line, counted rows, and the ring goes on."""
    (tmp_path / "segments").write_text("a file where the folder should be")
    store = Store(StoreConfig(), tmp_path)
    for index in range(3):
        store.add_spans([request_span(100.0, 0.1, number=index)], 100.0)
        await store.flush()
    assert store.dropped()["spans_not_written"] == 3
    assert len(store.spans(0, 1000)) == 3
    assert sum("segment not written" in record.message for record in caplog.records) == 1


async def test_a_full_disk_is_the_same(tmp_path: Path, request_span: RequestMaker) -> None:
    """/dev/full says ENOSPC on every write."""
    (tmp_path / "segments").symlink_to("/dev/full")
    store = Store(StoreConfig(), tmp_path)
    store.add_spans([request_span(100.0, 0.1)], 100.0)
    await store.flush()
    assert store.dropped()["spans_not_written"] == 1


async def test_a_new_store_reloads_the_last_minutes(
    tmp_path: Path, request_span: RequestMaker
) -> None:
    """Recent spans come back once, old ones do not."""
    store = Store(StoreConfig(max_age_s=60), tmp_path)
    spans = [request_span(100.0 + 20 * i, 0.1, number=i) for i in range(5)]
    for span in spans:
        store.add_spans([span], span.end_unix_ns / 1e9)
        await store.flush()
    again = Store(StoreConfig(max_age_s=60), tmp_path)
    assert again.reload(190.0) == spans[2:]
    assert again.add_spans(spans[2:], 190.0) == []
