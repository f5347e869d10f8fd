"""The command line: the table of commands, what cannot start, the inherited socket."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from kernels.cli import COMMANDS, main
from tests.support.workload_process import SMALL

PAIRS = [word for pair in SMALL for word in ("--set", pair)]


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_a_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The modules of the table exist, and their help ends with examples."""
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the commands that there are."""
    with pytest.raises(SystemExit) as left:
        main(["sevre"])
    assert left.value.code == 2
    assert "serve" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "max_runing=1"], "did you mean max_running"),
        (["--listen-fd", "0"], "--listen-fd 0"),
    ],
)
def test_what_cannot_start_says_so_in_one_line(arguments: list[str], message: str) -> None:
    """Exit code 2, one line, no traceback."""
    command = [sys.executable, "-m", "kernels.cli", "serve", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, message in line) == (2, True)


def test_a_port_in_use_says_so() -> None:
    """The message names the address and the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "kernels.cli", "serve", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"tailcause-workload: cannot listen on 127.0.0.1:{port}: Address already in use: pass another --port\n"
    )


async def test_an_inherited_socket_is_served_and_left_open(tmp_path: Path) -> None:
    """The server answers on the socket it was given; after its end the owner still holds it."""
    with socket.create_server(("127.0.0.1", 0)) as owned:
        port, number = owned.getsockname()[1], str(owned.fileno())
        command = [sys.executable, "-m", "kernels.cli", "serve", "--listen-fd", number]
        process = await asyncio.create_subprocess_exec(
            *command, "--cache", str(tmp_path), *PAIRS,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[owned.fileno()],
        )  # fmt: skip
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        async with aiohttp.ClientSession() as session:
            body = {"prompt": "a", "max_tokens": 2}
            async with session.post(
                f"http://127.0.0.1:{port}/v1/completions", json=body
            ) as response:
                status = response.status
        os.kill(ready["pid"], signal.SIGTERM)
        assert await process.wait() == 0
        still_listening = owned.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    assert (ready["port"], status, still_listening) == (port, 200, 1)
