"""Labels are written once, and never those of other attributes."""

from agent.exporters.exposition import render
from agent.exporters.label_texts import LabelTexts
from agent.telemetry.model import Attributes, Sample


class Counted:
    """Makes labels and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, attributes: Attributes) -> dict[str, str]:
        """Return the attributes as they are."""
        self.calls += 1
        return {key: str(value) for key, value in attributes.items()}


def test_same_attributes_are_written_once() -> None:
    """Over pages, for as long as they are on each; then they are forgotten."""
    texts, labels = LabelTexts(), Counted()
    attributes: Attributes = {"b": 2, "a": 'x"y'}
    for _ in range(3):
        texts.turn()
        assert texts.writer("own", labels)(attributes) == 'a="x\\"y",b="2"'
    assert labels.calls == 1
    texts.turn()
    texts.turn()
    texts.writer("own", labels)(attributes)
    assert labels.calls == 2


def test_names_do_not_share_their_texts() -> None:
    """Two functions make two texts of the same attributes."""
    texts = LabelTexts()
    attributes: Attributes = {"a": 1}
    texts.writer("own", Counted())(attributes)
    assert texts.writer("other", lambda _: {"z": "9"})(attributes) == 'z="9"'


def test_others_in_the_same_place_of_memory_are_told_apart() -> None:
    """Attributes that come and go, as a collector may make them afresh each time, never get another's text."""
    texts = LabelTexts()
    for number in range(2000):
        if number % 10 == 0:
            texts.turn()
        assert texts.writer("own", Counted())({"n": number}) == f'n="{number}"'


def info(model: str) -> Sample:
    """Return what is said once of a GPU."""
    keys = {"hw.id": "GPU-1", "hw.name": "nvidia0", "hw.model": model}
    return Sample("tailcause.gpu.info", 1, 1, keys)


def test_labels_that_depend_on_other_samples_follow_them() -> None:
    """DCGM's names bear the model, which is told apart from the value."""
    texts = LabelTexts()
    value = Sample("hw.gpu.utilization", 0.5, 1, {"hw.id": "GPU-1", "hw.gpu.task": "general"})
    pages = []
    for model in ("H100", "H200"):
        texts.turn()
        pages.append(render([info(model), value], {}, texts=texts).decode())
    lines = [
        next(line for line in page.splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{"))
        for page in pages
    ]
    assert "H100" in lines[0]
    assert "H200" in lines[1]
