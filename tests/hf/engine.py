# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights, continuous batching over them, and what generate() says."""

from __future__ import annotations

import inspect
import json
import logging
from pathlib import Path
from typing import Any

from tests.hf import environment

environment.activate()

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig  # noqa: E402
from transformers.generation.configuration_utils import ContinuousBatchingConfig  # noqa: E402

MODELS = Path(__file__).resolve().parent / "models"
SEED = 20240
VERSION = transformers.__version__
BATCHING = inspect.signature(ContinuousBatchingConfig).parameters

torch.set_num_threads(1)
logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
transformers.logging.set_verbosity_error()


def model(name: str, **changes: Any) -> Any:
    """A model of models/NAME.json, its weights drawn from a seed."""
    values = json.loads((MODELS / f"{name}.json").read_text()) | changes
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    torch.manual_seed(SEED)
    made = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    # Norms and biases stay as they are; what is drawn is wide enough for attention to matter.
    return made.float().eval()


def batching(page: int = 8, blocks: int = 64, tokens: int = 64, **more: Any) -> Any:
    """Continuous batching over so many blocks of `page` tokens. What a release does not know yet is
    left out."""
    values = {
        "page_size" if "page_size" in BATCHING else "block_size": page,
        "num_blocks": blocks,
        "max_batch_tokens": tokens,
        "use_async_batching": False,
        "use_cuda_graph": False,
        "max_blocks_per_request": 0,
    }
    values |= {k: v for k, v in more.items() if k in BATCHING}
    return ContinuousBatchingConfig(**values)


def generation(new: int = 12, sequences: int = 1) -> GenerationConfig:
    """Greedy, and to the end: an end token would hide what comes behind it. More than one sequence
    is refused of greedy generation, but forks that say what their parent says are wanted here."""
    made = GenerationConfig(max_new_tokens=new, do_sample=False, pad_token_id=0)
    made.num_return_sequences = sequences
    return made


def prompts(lengths: list[int], seed: int = 0, shared: int = 0) -> list[list[int]]:
    """Random prompts; the first `shared` tokens of all are the same."""
    draw = torch.Generator().manual_seed(seed)

    def tokens(n: int) -> list[int]:
        return torch.randint(3, 256, (n,), generator=draw).tolist()

    prefix = tokens(shared)
    return [prefix[:n] + tokens(n - min(n, shared)) for n in lengths]


def batched(made: Any, inputs: list[list[int]], config: Any, generate: Any) -> list[list[int]]:
    """Tokens of continuous batching, in the order of the inputs (an error's: as far as it came)."""
    outputs = made.generate_batch(
        inputs, generation_config=generate, continuous_batching_config=config
    )
    return [list(output.generated_tokens) for output in outputs.values()]


def plain(made: Any, inputs: list[list[int]], generate: Any) -> list[list[int]]:
    """Tokens of plain generate(), one request after another."""
    expected = []
    for tokens in inputs:
        with torch.no_grad():
            out = made.generate(torch.tensor([tokens]), generation_config=generate)
        expected.append(out[0, len(tokens) :].tolist())
    return expected
