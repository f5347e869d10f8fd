"""The spool keeps order over restarts, stays within its bound, and loses nothing silently."""

import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from agent.otlp.batch import Batch
from agent.otlp.codec import Signal
from agent.otlp.segment import HEAD_BYTES, decode_head, encode_head
from agent.otlp.spool import Spool, SpoolSettings
from agent.otlp.spool_folder import sweep

Losses = Counter[tuple[Signal, int, str]]


def batch(number: int, size: int = 100, signal: Signal = Signal.TRACES) -> Batch:
    """Return a batch whose body and items tell its number."""
    return Batch(signal, str(number).encode().ljust(size, b"."), number)


def spool_in(folder: Path, max_bytes: int = 1 << 20, losses: Losses | None = None) -> Spool:
    """Return a recovered spool; what it loses is counted by (signal, items, reason)."""
    counted = Counter() if losses is None else losses

    def lose(signal: Signal, items: int, reason: str) -> None:
        counted[signal, items, reason] += 1

    spool = Spool(SpoolSettings(folder, max_bytes), lose)
    spool.recover()
    return spool


def drain(spool: Spool) -> list[Batch]:
    """Take everything off, in order."""
    found = []
    while (head := spool.head()) is not None:
        found.append(head)
        assert spool.settle(head)
    return found


def die(spool: Spool) -> None:
    """Let the folder go without a word, as the kernel does when a process dies."""
    assert spool._place is not None
    spool._place.close(remove=False)


def test_records_come_back_whole() -> None:
    """A head holds signal, items, id and check sum, and a changed byte is no head."""
    written = Batch(Signal.LOGS, b"body", 7)
    raw = encode_head(written)
    head = decode_head(raw)
    assert head is not None
    assert head.batch(b"body") == written
    assert head.batch(b"bodY") is None
    for position in range(HEAD_BYTES):
        changed = bytearray(raw)
        changed[position] ^= 1
        assert decode_head(bytes(changed)) is None


def test_order_holds_over_segments(tmp_path: Path) -> None:
    """What goes in first comes out first, also when it takes several files."""
    spool = spool_in(tmp_path / "s", max_bytes=16 * 1000)
    batches = [batch(number, 300) for number in range(1, 30)]
    assert all(spool.append(one) for one in batches)
    assert len(list((tmp_path / "s").glob("*.seg"))) > 5
    assert drain(spool) == batches
    assert (spool.size_bytes, spool.items.total(), bool(spool)) == (0, 0, False)


def test_nothing_is_made_before_the_first_batch(tmp_path: Path) -> None:
    """A back end that is never away costs no file; when all is sent none is left."""
    spool = spool_in(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    spool.append(batch(1))
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    drain(spool)
    spool.close()
    assert not (tmp_path / "s").exists()


def test_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    """A process that ends without a word leaves what was not answered for, and only that."""
    first = spool_in(tmp_path)
    for number in range(1, 6):
        first.append(batch(number))
    for _ in range(2):
        head = first.head()
        assert head is not None
        first.settle(head)
    die(first)
    second = spool_in(tmp_path)
    assert second.items == {Signal.TRACES: 3 + 4 + 5}
    second.append(batch(6))
    assert [one.items for one in drain(second)] == [3, 4, 5, 6]


def test_an_answer_that_was_not_noted_sends_the_same_batch_again(tmp_path: Path) -> None:
    """A crash between answer and removal repeats a batch under its id."""
    first = spool_in(tmp_path)
    sent = batch(1)
    first.append(sent)
    assert first.head() == sent
    die(first)
    assert [one.batch_id for one in drain(spool_in(tmp_path))] == [sent.batch_id]


def test_a_batch_before_the_recovery_comes_after_what_was_left(tmp_path: Path) -> None:
    """Whoever puts a batch in first takes up the rest as well."""
    first = spool_in(tmp_path)
    first.append(batch(1))
    die(first)
    second = Spool(SpoolSettings(tmp_path, 1 << 20), lambda *_: None)
    second.append(batch(2))
    second.recover()
    assert second.off == ""
    assert [one.items for one in drain(second)] == [1, 2]


@pytest.mark.parametrize("cut", [1, 50, 100, HEAD_BYTES + 99])
def test_torn_tail_is_cut_off(tmp_path: Path, cut: int) -> None:
    """A record that was written in part goes, those before it stay, and it is counted."""
    first = spool_in(tmp_path)
    for number in (1, 2, 3):
        first.append(batch(number))
    die(first)
    [file] = tmp_path.glob("*.seg")
    os.truncate(file, file.stat().st_size - cut)
    second = spool_in(tmp_path)
    assert second.write_failures == {"torn": 1}
    assert file.stat().st_size == 2 * (HEAD_BYTES + 100)
    assert [one.items for one in drain(second)] == [1, 2]


def test_damaged_body_is_lost_alone(tmp_path: Path) -> None:
    """A changed byte costs its own batch, which is counted by signal."""
    losses: Losses = Counter()
    spool = spool_in(tmp_path, losses=losses)
    for number in (1, 2, 3):
        spool.append(batch(number, signal=Signal.METRICS))
    [file] = tmp_path.glob("*.seg")
    with file.open("r+b") as opened:
        opened.seek(HEAD_BYTES + 100 + HEAD_BYTES + 5)
        opened.write(b"X")
    assert [one.items for one in drain(spool)] == [1, 3]
    assert losses == {(Signal.METRICS, 2, "spool_damaged"): 1}


def test_damaged_head_costs_the_rest_of_the_file(tmp_path: Path) -> None:
    """What follows a head that cannot be read is counted whole, and later files are read."""
    losses: Losses = Counter()
    spool = spool_in(tmp_path, max_bytes=16 * 400, losses=losses)
    for number in range(1, 6):
        spool.append(batch(number))
    first = min(tmp_path.glob("*.seg"))
    with first.open("r+b") as opened:
        opened.seek(HEAD_BYTES + 100)
        opened.write(b"X")
    assert [one.items for one in drain(spool)] == [1, 4, 5]
    assert losses == {(Signal.TRACES, 5, "spool_damaged"): 1}


def test_the_oldest_go_at_the_cap(tmp_path: Path) -> None:
    """The disk taken never passes the cap; what went is counted and what is left is the newest."""
    losses: Losses = Counter()
    spool = spool_in(tmp_path, max_bytes=4000, losses=losses)
    for number in range(1, 101):
        assert spool.append(batch(number))
        assert sum(file.stat().st_size for file in tmp_path.glob("*.seg")) <= 4000
    left = [one.items for one in drain(spool)]
    assert left == list(range(101 - len(left), 101))
    assert len(left) > 20
    lost = sum(items * count for (_, items, _), count in losses.items())
    assert lost + sum(left) == 5050
    assert {reason for _, _, reason in losses} == {"spool_full"}


def test_batch_in_the_senders_hands_is_the_senders_to_count(tmp_path: Path) -> None:
    """What is being sent when its file goes is not counted as lost here."""
    losses: Losses = Counter()
    spool = spool_in(tmp_path, max_bytes=400, losses=losses)
    spool.append(batch(1))
    head = spool.head()
    assert head is not None
    for number in (2, 3, 4):
        spool.append(batch(number))
    assert not spool.holds(head)
    assert not spool.settle(head)
    assert not losses
    assert [one.items for one in drain(spool)] == [2, 3, 4]


def test_one_batch_above_the_cap_is_not_taken(tmp_path: Path) -> None:
    """What could never fit pushes nothing out."""
    spool = spool_in(tmp_path, max_bytes=1000)
    spool.append(batch(1))
    assert not spool.append(batch(2, size=1000))
    assert [one.items for one in drain(spool)] == [1]


def test_two_processes_do_not_share(tmp_path: Path) -> None:
    """The second one has no spool and says why."""
    first = spool_in(tmp_path)
    first.append(batch(1))
    second = spool_in(tmp_path)
    assert "another agent" in second.off
    assert not second.append(batch(2))
    assert [one.items for one in drain(first)] == [1]


def test_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file in the way turns the spool off at the start, not at the first loss."""
    (tmp_path / "file").write_text("")
    spool = spool_in(tmp_path / "file" / "spool")
    assert "Not a directory" in spool.off
    assert not spool.append(batch(1))


def test_what_cannot_be_taken_up_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that fails while it is read is let go, and its batches are still there the next time."""
    first = spool_in(tmp_path)
    first.append(batch(1))
    die(first)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", _fail)
        assert spool_in(tmp_path).off
    assert [one.items for one in drain(spool_in(tmp_path))] == [1]


def _fail(*_: object) -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def test_full_disk_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that does not fit leaves the file whole; after a rest it is tried again."""
    now_s = 100.0
    spool = Spool(SpoolSettings(tmp_path, 1 << 20), lambda *_: None, lambda: now_s)
    spool.recover()
    spool.append(batch(1))
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [parts[0][:10]]))
    assert not spool.append(batch(2))
    assert not spool.append(batch(3))
    assert spool.write_failures == {"ENOSPC": 1, "resting": 1}
    monkeypatch.setattr(os, "writev", real)
    now_s += 6
    assert spool.append(batch(4))
    assert [one.items for one in drain(spool)] == [1, 4]


def test_folder_that_is_taken_away(tmp_path: Path) -> None:
    """When files vanish below it, what they held is counted and the spool goes on."""
    losses: Losses = Counter()
    spool = spool_in(tmp_path, losses=losses)
    spool.append(batch(1))
    spool.close()
    spool = spool_in(tmp_path, losses=losses)
    for file in tmp_path.glob("*.seg"):
        file.unlink()
    assert spool.head() is None
    assert losses == {(Signal.TRACES, 1, "spool_damaged"): 1}
    assert spool.append(batch(2))
    assert [one.items for one in drain(spool)] == [2]


def test_spools_of_other_back_ends_go_after_a_week(tmp_path: Path) -> None:
    """Only what is old, held by nobody and not to be kept is removed."""
    for name in ("old", "kept", "held", "young"):
        spool = spool_in(tmp_path / name)
        spool.append(batch(1))
        if name != "held":
            spool.close()
        if name != "young":
            for file in (tmp_path / name).iterdir():
                os.utime(file, (1000.0, 1000.0))
    (tmp_path / "stranger").mkdir()
    (tmp_path / "a file").write_text("")
    removed = sweep(tmp_path, frozenset({"kept"}), 2000.0)
    assert [folder.name for folder in removed] == ["old"]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("kept", "held", "young", "stranger", "a file")
    }
