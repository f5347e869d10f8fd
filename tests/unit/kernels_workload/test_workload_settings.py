"""Reading `--set KEY=VALUE`."""

import pytest

from kernels.errors import WorkloadError
from kernels.workload.settings import Batching, Settings, as_text, parse


def test_values_get_their_types() -> None:
    """Each kind of setting is read as what it is, and the last one wins."""
    settings = parse(
        [
            "max_running=3",
            "max_running=4",
            "batching=static",
            "tenant_index=off",
            "batch_wait_s=0.5",
        ]
    )
    assert settings == Settings(
        max_running=4, batching=Batching.STATIC, tenant_index=False, batch_wait_s=0.5
    )


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("max_runing=3", "did you mean max_running"),
        ("colour=red", "known: max_running"),
        ("max_running", "write KEY=VALUE"),
        ("max_running=many", "want a whole number"),
        ("max_running=0", "want at least 1"),
        ("batch_wait_s=nan", "want at least 0"),
        ("batching=dynamc", "want continuous or static or dynamic or shape"),
        ("step_tokens=23", "want at least 24, one token for each of max_running=8 rows"),
        ("tenant_index=yes", "want on or off"),
        ("heads=7", "must divide hidden"),
    ],
)
def test_wrong_settings_say_what_to_do(pair: str, message: str) -> None:
    """A wrong setting is an error with the way out."""
    with pytest.raises(WorkloadError, match=message):
        parse([pair])


def test_settings_survive_as_text() -> None:
    """What `as_text` writes, `parse` reads."""
    settings = Settings(tenant_index=False, batching=Batching.STATIC, drain_s=1.5)
    assert settings == parse([f"{key}={value}" for key, value in as_text(settings).items()])
