"""The KV budget: blocks are held, named, found again and forgotten."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernels.workload.kv_blocks import KvBlocks, blocks_of, name_of

A, B, C = b"a", b"b", b"c"


def filled(blocks: KvBlocks, *names: bytes) -> list[int]:
    """Take, name and give back one block per name: a sequence that is over."""
    taken = blocks.take(len(names)) or []
    for block, name in zip(taken, names, strict=True):
        blocks.name(block, name)
    blocks.give_back(taken)
    return taken


def test_blocks_are_rounded_up() -> None:
    """A block that is begun is held whole."""
    assert [blocks_of(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_name_stands_for_everything_before_it() -> None:
    """Equal tokens behind different beginnings are different blocks, and pieces of one name are not taken for another."""
    names = {
        name_of(b"", [1, 2]),
        name_of(b"", [1, 258]),
        name_of(name_of(b"", [3, 4]), [1, 2]),
        name_of(name_of(b"", [4, 3]), [1, 2]),
    }
    assert len(names) == 4
    assert name_of(b"", [1, 2]) == name_of(b"", [1, 2])


def test_the_longest_known_beginning_is_found() -> None:
    """A block behind an unknown one is of no use."""
    blocks = KvBlocks(4)
    taken = filled(blocks, A, B, C)
    assert blocks.find([A, B, b"other", C]) == taken[:2]
    assert blocks.used == 2


def test_nothing_is_held_when_there_is_no_room() -> None:
    """Half an allocation would be lost."""
    blocks = KvBlocks(2)
    held = blocks.take(1)
    assert blocks.take(2) is None
    assert (held, blocks.used) == ([0], 1)


def test_the_least_recently_used_goes_first_and_the_end_before_the_beginning() -> None:
    """What is needed takes the room of what was not asked for the longest; held blocks stay."""
    blocks = KvBlocks(4)
    filled(blocks, A, B)
    filled(blocks, C)
    held = blocks.find([A, B])
    blocks.give_back(held)
    blocks.take(2)  # one that is free, and C
    assert (blocks.find([C]), blocks.find([A, B])) == ([], held)
    blocks.give_back(held)
    blocks.take(1)
    assert blocks.find([A, B]) == held[:1]


def test_a_shared_block_stays_until_its_last_holder_has_gone() -> None:
    """The budget counts it once."""
    blocks = KvBlocks(1)
    (block,) = filled(blocks, A)
    both = [blocks.find([A]), blocks.find([A])]
    assert (both, blocks.used) == ([[block], [block]], 1)
    blocks.give_back(both[0])
    assert blocks.take(1) is None
    blocks.give_back(both[1])
    assert blocks.take(1) == [block]
    assert blocks.find([A]) == []


def test_a_name_is_given_once() -> None:
    """Two that fill the same block at the same time keep one copy."""
    blocks = KvBlocks(2)
    first, second = blocks.take(2) or []
    assert (blocks.name(first, A), blocks.name(second, A)) == (True, False)


@given(st.lists(st.tuples(st.sampled_from(["take", "find", "give", "name"]), st.integers(0, 5))))
def test_no_block_is_ever_given_to_two(actions: list[tuple[str, int]]) -> None:
    """Whatever happens in which order: only found blocks are shared, and the count of the used ones is right."""
    blocks = KvBlocks(6)
    held: list[list[int]] = []
    for action, number in actions:
        before = Counter(block for some in held for block in some)
        if action == "take":
            taken = blocks.take(number)
            assert (taken is None) == (number > 6 - len(before))
            assert not before.keys() & set(taken or ())
            held.append(taken or [])
        elif action == "find":
            held.append(blocks.find([bytes([at]) for at in range(number)]))
        elif action == "give" and held:
            blocks.give_back(held.pop(number % len(held)))
        elif action == "name" and any(held):
            some = next(one for one in held if one)
            blocks.name(some[0], bytes([number]))
        assert blocks.used == len({block for some in held for block in some})
