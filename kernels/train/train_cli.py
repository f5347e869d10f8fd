"""`tailcause-workload train`: weights from local text, for `serve --weights`."""

import argparse
import json
import sys
import time
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.train.corpus import read_corpus
from kernels.workload.model import ModelSpec
from kernels.workload.settings import Settings
from kernels.workload.weights_file import save_weights

EPILOG = """examples:
  tailcause-workload train --text book.txt --out weights.npz
  tailcause-workload train --text *.md --steps 1000 --out weights.npz
  tailcause-workload serve --weights weights.npz

Nothing is downloaded. The defaults take a few minutes on two cores. Another size of the model has to be
given to `serve` as well, as settings.

exit codes: 0 trained and written, 2 cannot start
"""
_REPORT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`."""
    parser.epilog = EPILOG
    size = Settings()
    parser.add_argument("--text", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="weights to write")
    for name in ("layers", "hidden", "heads", "context"):
        default = getattr(size, name)
        parser.add_argument(f"--{name}", type=_positive, default=default, help=f"({default})")
    parser.add_argument("--steps", type=_positive, default=300, help="updates (300)")
    parser.add_argument("--batch", type=_positive, default=16, help="windows per update (16)")
    parser.add_argument("--window", type=_positive, default=128, help="tokens of a window (128)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and windows (0)")


def run(args: argparse.Namespace) -> int:
    """Train, write the weights, say what they are worth."""
    spec = ModelSpec(args.layers, args.hidden, args.heads, args.context)
    if spec.hidden % spec.heads or args.window > spec.context:
        raise WorkloadError("--heads must divide --hidden, and --window fit into --context")
    corpus = read_corpus(args.text, args.window)
    try:
        import torch  # noqa: F401, PLC0415 - 200 MB that only training needs

        from kernels.train.training import Progress, Recipe, train  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise WorkloadError(f"{error}: pip install 'tailcause[workload,train]'") from error
    last_s = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal last_s
        if progress.step == args.steps or time.monotonic() - last_s >= _REPORT_S:
            last_s = time.monotonic()
            sys.stderr.write(
                f"event=train step={progress.step} of={args.steps} "
                f"bits_per_byte={progress.bits:.3f} tokens_per_s={progress.tokens_per_s:.0f}\n"
            )

    recipe = Recipe(args.steps, args.batch, args.window, seed=args.seed)
    weights, bits = train(corpus, spec, recipe, report)
    save_weights(args.out, spec, weights)
    told = {"event": "trained", "file": str(args.out), "bits_per_byte": round(bits, 4)}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: want a whole number from 1")
    return int(text)
