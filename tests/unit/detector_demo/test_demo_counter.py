"""The kernel's count that the report is held against."""

from pathlib import Path

import pytest

from detector.cli.demo.counter import (
    CpuMount,
    ThrottledCounter,
    cpu_mount,
    throttled_reader,
    throttled_s,
)

V1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / {root}/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
CPUACCT = "33 31 0:30 / {root}/acct rw - cgroup cgroup rw,cpuacct\n"
V2 = "38 31 0:38 / {root}/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V1, CpuMount(Path("/c/cpu"), v2=False)),
        (V2 + V1, CpuMount(Path("/c/cpu"), v2=False)),
        (CPUACCT + V2, CpuMount(Path("/c/unified"), v2=True)),
        (CPUACCT, None),
    ],
)
def test_the_hierarchy_with_the_cpu_controller_is_found(
    tmp_path: Path, text: str, expected: CpuMount | None
) -> None:
    """Version 1, hybrid, version 2, and none at all."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(text.format(root="/c"))

    assert expected == cpu_mount(mountinfo)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nr_periods 9\nnr_throttled 4\nthrottled_time 1500000000\n", 1.5),
        ("usage_usec 7\nnr_periods 9\nthrottled_usec 1500000\n", 1.5),
        ("usage_usec 7\n", None),
    ],
)
def test_both_forms_of_cpu_stat_are_read_in_seconds(text: str, expected: float | None) -> None:
    """Nanoseconds in version 1, microseconds in version 2, nothing without a quota's counters."""
    assert expected == throttled_s(text.splitlines())


def test_a_reader_follows_its_file_and_its_end(tmp_path: Path) -> None:
    """A cgroup that is gone gives no number."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    stat = tmp_path / "a" / "b" / "cpu.stat"
    read = throttled_reader(CpuMount(tmp_path, v2=False), "/a/b")
    stat.write_text("throttled_time 2000000000\n")
    before = read()
    stat.unlink()

    assert (before, read()) == (2.0, None)


def _counter(samples: list[tuple[float, float | None]]) -> ThrottledCounter:
    times = iter([at for at, _ in samples for _ in range(2)])
    values = iter([value for _, value in samples])
    counter = ThrottledCounter(lambda: next(values), lambda: next(times))
    for _ in samples:
        counter.sample()
    return counter


def test_the_increase_between_two_times_is_interpolated() -> None:
    """Half of each step at the edges, the whole one in the middle."""
    counter = _counter([(10.0, 1.0), (11.0, 3.0), (12.0, 3.0), (13.0, 7.0)])

    assert counter.between(10.5, 12.5) == 1.0 + 0.0 + 2.0


def test_an_edge_at_a_sample_takes_that_sample() -> None:
    """No interpolation is needed there."""
    counter = _counter([(10.0, 1.0), (11.0, 3.0), (12.0, 4.0)])

    assert counter.between(10.0, 12.0) == 3.0


@pytest.mark.parametrize(("start", "end"), [(9.0, 11.0), (10.5, 12.5)])
def test_no_number_outside_of_the_samples(start: float, end: float) -> None:
    """What was not counted is not made up."""
    counter = _counter([(10.0, 1.0), (11.0, 3.0), (12.0, 4.0)])

    assert counter.between(start, end) is None


def test_unreadable_samples_are_left_out() -> None:
    """They are no zeros."""
    counter = _counter([(10.0, 1.0), (11.0, None), (12.0, 5.0)])

    assert counter.between(10.0, 12.0) == 4.0


def test_a_clock_that_steps_back_does_not_mix_up_the_samples() -> None:
    """Samples stay in order of time; those that would not are left out."""
    counter = _counter([(10.0, 1.0), (12.0, 3.0), (11.0, 4.0), (14.0, 7.0)])

    assert counter.between(10.0, 14.0) == 6.0
    assert counter.between(12.0, 13.0) == 2.0
