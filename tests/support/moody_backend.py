"""A back end in a process of its own that does what a file tells it: `moody_backend PORT MOOD_FILE SPANS_FILE`.

Moods: `ok` takes what comes; `503`, `429` (with Retry-After: 1) and `garbage` (bytes that are no HTTP) do not;
`hang` does not answer and does not take; `mute` takes and does not answer. Each span that is taken is a line of
the spans' file, written before the answer.
"""

import asyncio
import sys
from pathlib import Path

from agent.http.message import Handler, Request, Response, Routes
from agent.http.server import Server
from agent.otlp.codec import Message, Signal, spans
from agent.otlp.receiver import Receiver, Verdict

_PAUSE_S = 0.02


class Moody:
    """Answers by its mood."""

    def __init__(self, mood: Path, taken: Path) -> None:
        self._mood = mood
        self._taken = taken.open("a", buffering=1)
        self._server = Server(self._moody(Receiver(self.accept).routes()))

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

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection; in the mood `garbage` in no protocol at all."""
        if self.mood != "garbage":
            await self._server.serve(reader, writer)
            return
        await reader.read(1)
        writer.write(b"\x00\xff no HTTP at all\r\n\r\n")
        writer.close()

    def _moody(self, routes: Routes) -> Routes:
        """Refuse before the receiver sees anything."""

        def moody(handler: Handler) -> Handler:
            async def answer(request: Request) -> Response:
                mood = self.mood
                if mood == "hang":
                    await self.until_other_than("hang")
                if mood in {"hang", "503", "garbage"}:
                    return Response(503, close=True)
                if mood == "429":
                    return Response(429, headers={"Retry-After": "1"})
                return await handler(request)

            return answer

        return {
            path: {verb: moody(one) for verb, one in all_.items()} for path, all_ in routes.items()
        }


async def serve(port: int, moody: Moody) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(moody.connected, "127.0.0.1", port, reuse_address=True)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with server:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Moody(Path(sys.argv[2]), Path(sys.argv[3]))))
