"""Reserved ids end up on the span they were reserved for."""

import threading

from kernels.workload.ids import Ids, ReservedIds


def test_reserved_ids_are_used_once() -> None:
    """The next root span carries them, the one after that does not."""
    ids = ReservedIds()
    reserved = ids.reserve()
    ids.use(reserved)
    assert Ids(ids.generate_trace_id(), ids.generate_span_id()) == reserved
    assert Ids(ids.generate_trace_id(), ids.generate_span_id()) != reserved


def test_other_threads_do_not_get_them() -> None:
    """A span that another thread makes meanwhile has ids of its own."""
    ids = ReservedIds()
    reserved = ids.reserve()
    ids.use(reserved)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(ids.generate_span_id()))
    thread.start()
    thread.join()
    assert found != [reserved.span_id]
    assert ids.generate_span_id() == reserved.span_id


def test_ids_are_valid() -> None:
    """No id is zero, and no two are alike."""
    ids = ReservedIds()
    drawn = [ids.reserve() for _ in range(100)]
    assert all(one.trace_id and one.span_id for one in drawn)
    assert len(set(drawn)) == 100
