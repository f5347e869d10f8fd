"""Certificates of an authority of our own, made by openssl when a test asks for them."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: an authority, and a certificate with its key for a server and for a client."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them; they hold for a day."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-days", "1", "-subj", "/CN=test authority", "-keyout", str(ca_key), "-out", str(ca)),
    )
    pairs = [_issue(folder, name, ca, ca_key) for name in ("server", "client")]
    return Certificates(ca, *pairs[0], *pairs[1])


def _issue(folder: Path, name: str, ca: Path, ca_key: Path) -> tuple[Path, Path]:
    cert, key, request = (folder / f"{name}{end}" for end in (".pem", ".key", ".csr"))
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-subj", f"/CN={name}", "-addext", _NAMES, "-keyout", str(key), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-days", "1", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key)),
        *("-CAcreateserial", "-copy_extensions", "copy", "-out", str(cert)),
    )
    return cert, key


def _openssl(*arguments: str) -> None:
    subprocess.run(("openssl", *arguments), check=True, capture_output=True)
