"""A back end in a process of its own that does what a file tells it: `moody_backend PORT MOOD_FILE SPANS_FILE`.

Moods: `ok` takes what comes; `503`, `429` (with Retry-After: 1) and `garbage` (bytes that are no HTTP) do not;
`hang` does not answer and does not take; `mute` takes and does not answer. Each span that is taken is a line of
the spans' file, written before the answer.
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from agent.otlp.codec import Message, Signal, spans
from agent.otlp.receiver import Receiver, Verdict, runner

_PAUSE_S = 0.02


class Moody:
    """Answers by its mood."""

    def __init__(self, mood: Path, taken: Path) -> None:
        self._mood = mood
        self._taken = taken.open("a", buffering=1)

    @property
    def mood(self) -> str:
        """Return what the file says now."""
        return self._mood.read_text().strip()

    async def until_other_than(self, mood: str) -> None:
        """Wait until the mood has changed."""
        while self.mood == mood:  # noqa: ASYNC110  a file tells it
            await asyncio.sleep(_PAUSE_S)

    async def accept(self, signal: Signal, message: Message) -> Verdict:
        """Write the spans down; in the mood `mute` do not come back."""
        if signal is Signal.TRACES:
            self._taken.write("".join(f"{span.span_id}\n" for span in spans(message)))
        await self.until_other_than("mute")
        return Verdict()

    def middleware(self) -> object:
        """Return what refuses before the receiver sees anything."""

        @web.middleware
        async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
            mood = self.mood
            if mood == "hang":
                await self.until_other_than("hang")
                return web.Response(status=503)
            if mood == "garbage":
                assert request.transport is not None
                request.transport.write(b"\x00\xff no HTTP at all\r\n\r\n")
                request.transport.close()
            if mood in {"503", "garbage"}:
                return web.Response(status=503)
            if mood == "429":
                return web.Response(status=429, headers={"Retry-After": "1"})
            return await handler(request)

        return refuse


async def serve(port: int, moody: Moody) -> None:
    """Serve until killed."""
    app = web.Application(middlewares=[moody.middleware()])  # type: ignore[list-item]
    Receiver(moody.accept).register(app)
    app_runner = runner(app)
    await app_runner.setup()
    await web.TCPSite(app_runner, "127.0.0.1", port, reuse_address=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Moody(Path(sys.argv[2]), Path(sys.argv[3]))))
