"""The inference server: model, backend, engine, scheduler, HTTP front and tracing."""
