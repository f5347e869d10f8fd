"""Trained weights in a file: a zip of arrays (NumPy's npz), and the model that they belong to."""

import hashlib
import zipfile
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.errors import WorkloadError
from kernels.workload.model import ModelSpec, Trained, Weights, shapes

FORMAT = 1
"""Written into every file: bump it when names, shapes or their meaning change."""

_ABOUT = "tailcause"
_HEADER_BYTES = 1024  # more than the header of any array has
_SIZES = ("layers", "hidden", "heads", "context")


def save_weights(path: Path, spec: ModelSpec, values: Weights) -> None:
    """Write a file in one step. Raises WorkloadError."""
    about = np.array([FORMAT, *_identity(spec)], np.int64)
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_ABOUT: about}, **values)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise WorkloadError(f"cannot write {path}: {error.strerror}") from error


def load_weights(path: Path, spec: ModelSpec) -> Weights:
    """Read the weights of this model. Raises WorkloadError with what to do."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {one.filename.removesuffix(".npy"): one.file_size for one in archive.infolist()}
        with np.load(path, allow_pickle=False) as arrays:
            _check_about(path, arrays[_ABOUT], spec)
            return {
                name: _array(path, arrays, name, shape, sizes)
                for name, shape in shapes(spec).items()
            }
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise WorkloadError(
            f"{path} holds no weights of ours: make it by `tailcause-workload train`"
        ) from error


def trained(path: Path, spec: ModelSpec) -> Trained:
    """Name a file by its content, and have it read only where a model is built from it. Raises WorkloadError."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
    return Trained(digest, lambda: load_weights(path, spec))


def _identity(spec: ModelSpec) -> tuple[int, ...]:
    """Sizes of a model; the seed of weights that were drawn is none of a trained one's."""
    return astuple(replace(spec, seed=0))


def _check_about(path: Path, about: NDArray[np.int64], spec: ModelSpec) -> None:
    if about.shape != (1 + len(_identity(spec)),) or about[0] != FORMAT:
        raise WorkloadError(f"{path} is of another format: train it again")
    if tuple(about[1:].tolist()) != _identity(spec):
        needed = " ".join(
            f"--set {name}={size}" for name, size in zip(_SIZES, about[1:], strict=False)
        )
        raise WorkloadError(f"{path} is for another model: serve it with {needed}")


def _array(
    path: Path,
    arrays: "np.lib.npyio.NpzFile",
    name: str,
    shape: tuple[int, ...],
    sizes: dict[str, int],
) -> NDArray[np.float32]:
    """Take one array, once it is known to be no larger than it should be."""
    if sizes.get(name, 0) > 4 * int(np.prod(shape)) + _HEADER_BYTES:
        raise WorkloadError(f"{path}: {name} is too large: train it again")
    array = arrays[name]
    if array.dtype != np.float32 or array.shape != shape or not np.isfinite(array).all():
        raise WorkloadError(f"{path}: {name} is damaged: train it again")
    return array
