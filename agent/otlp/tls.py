"""Certificates of a client: the authority that it trusts and what it shows of itself."""

import ssl
from pathlib import Path
from typing import Any

from agent.errors import CannotStartError
from agent.otlp.transport import Target


def client_context(target: Target) -> ssl.SSLContext:
    """Return them for asyncio; raises `CannotStartError` for a file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=target.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if target.cert_file:
            context.load_cert_chain(target.cert_file, target.key_file)
    except (OSError, ssl.SSLError) as exc:
        files = (target.ca_file, target.cert_file, target.key_file)
        named = ", ".join(file for file in files if file)
        raise CannotStartError(
            f"TLS: {exc.strerror or exc}: forward_ca, forward_cert and forward_key are PEM files ({named})"
        ) from exc
    return context


def grpc_channel_credentials(target: Target, grpc: Any) -> Any:
    """Return them for gRPC, whose module the caller has imported; raises `CannotStartError`."""
    client_context(target)  # gRPC tells of a bad file by its log alone
    return grpc.ssl_channel_credentials(
        root_certificates=_bytes(target.ca_file),
        private_key=_bytes(target.key_file),
        certificate_chain=_bytes(target.cert_file),
    )


def _bytes(file: str) -> bytes | None:
    return Path(file).read_bytes() if file else None
