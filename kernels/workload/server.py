"""The HTTP application: routes, health, metrics, and errors in OpenAI's shape."""

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kernels.workload.completions import Completions, Service
from kernels.workload.metrics import Reading
from kernels.workload.openai_answers import APIS
from kernels.workload.openai_api import ApiError


class Front:
    """The application's state: whether it is draining and how many requests it holds."""

    def __init__(self, service: Service, lost_spans: Callable[[], int]) -> None:
        self._service = service
        self._lost_spans = lost_spans
        self._completions = Completions(service)
        self.draining = False

    @property
    def in_flight(self) -> int:
        """Completions being answered."""
        return self._completions.in_flight

    def application(self, max_body_bytes: int) -> web.Application:
        """Build the aiohttp application."""
        app = web.Application(client_max_size=max_body_bytes, middlewares=[self._middleware()])
        for api in APIS:
            app.router.add_post(api.route, self._completions.handler(api))
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        return app

    def _middleware(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await _with_api_errors(request, handler)
            if self.draining and not response.prepared:
                response.force_close()
            return response

        return guard

    async def _healthz(self, _: web.Request) -> web.Response:
        status = "draining" if self.draining else "ok"
        return web.json_response({"status": status}, status=503 if self.draining else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        engine = self._service.engine
        now = Reading(engine.running, engine.waiting, engine.kv_used_ratio, self._lost_spans())
        page = self._service.metrics.expose(now)
        return web.Response(text=page, content_type="text/plain", charset="utf-8")


async def _with_api_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _refusal(error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        return _refusal(ApiError(error.status, message, error.reason.lower().replace(" ", "_")))


def _refusal(error: ApiError) -> web.Response:
    response = web.Response(status=error.status, body=error.body(), content_type="application/json")
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response
