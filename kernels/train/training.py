"""A short training run on the CPU: AdamW, warm-up, cosine, and a number that says what it was worth."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from kernels.train.corpus import Corpus, Windows, draw
from kernels.train.transformer import Parameters, fresh_parameters, logits, weights_of
from kernels.workload.model import ModelSpec, Weights

JUDGED_BATCHES = 8
_WARM_UP = 0.1
_CLIP = 1.0


@dataclass(frozen=True)
class Recipe:
    """How long and how fast to train; `window` is the tokens of one example."""

    steps: int = 300
    batch: int = 16
    window: int = 128
    learning_rate: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """How far the run is; losses are bits per byte."""

    step: int
    bits: float
    tokens_per_s: float


def train(
    corpus: Corpus, spec: ModelSpec, recipe: Recipe, report: Callable[[Progress], None]
) -> tuple[Weights, float]:
    """Train and judge on text that was held out; the weights and its bits per byte."""
    rng = np.random.default_rng(recipe.seed)
    parameters = fresh_parameters(spec, recipe.seed)
    optimizer = torch.optim.AdamW(parameters.values(), betas=(0.9, 0.95), weight_decay=0.1)
    began = time.monotonic()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * pace(step, recipe.steps)
        windows = draw(corpus.training, (recipe.batch, recipe.window), spec.context, rng)
        loss = _loss(parameters, spec, windows)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), _CLIP)
        optimizer.step()
        done = (step + 1) * recipe.batch * recipe.window
        bits = float(loss.detach()) / math.log(2)
        report(Progress(step + 1, bits, done / (time.monotonic() - began)))
    return weights_of(parameters, spec), judge(corpus, spec, recipe, parameters)


def pace(step: int, steps: int) -> float:
    """Share of the learning rate: up during the first tenth, then down along a cosine to a tenth."""
    warm = max(1, round(steps * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def judge(corpus: Corpus, spec: ModelSpec, recipe: Recipe, parameters: Parameters) -> float:
    """Bits per byte on the text that was held out."""
    rng = np.random.default_rng(recipe.seed)
    shape = (recipe.batch, recipe.window)
    with torch.no_grad():
        losses = [
            float(_loss(parameters, spec, draw(corpus.held_out, shape, spec.context, rng)))
            for _ in range(JUDGED_BATCHES)
        ]
    return float(np.mean(losses)) / math.log(2)


def _loss(parameters: Parameters, spec: ModelSpec, windows: Windows) -> torch.Tensor:
    scores = logits(
        parameters, spec, torch.from_numpy(windows.tokens), torch.from_numpy(windows.positions)
    )
    return functional.cross_entropy(
        scores.flatten(0, 1), torch.from_numpy(windows.following).flatten()
    )
