# SPDX-License-Identifier: Apache-2.0
"""Tiny models with real random weights, so that damage in the KV cache changes the output.

vLLM's own dummy weights lie within +-0.001: attention then hardly moves the logits and a wrong
block can go unseen. The weights here come from a seed, byte for byte the same on every machine.

usage: make_models.py [NAME ...]      prints the folder of each model
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from rig.environment import RIG, cache_root

CONFIGS = RIG / "models"
SEED = 20240
# Gains above 1/sqrt(fan in) keep attention sharp and the residual stream moving, so that greedy
# decoding does not settle in a loop which would look the same with and without damage.
GAIN_QK, GAIN_VALUE, GAIN_HEAD = 1.5, 2.0, 3.0


class _Uniform:
    """Uniform floats with variance 1, exact in float32, from the raw output of PCG64."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def matrix(self, rows: int, columns: int, gain: float, fan_in: int | None = None) -> np.ndarray:
        raw = self._bits.random_raw(rows * columns)
        # 24 bits fit a float32 exactly; the scale is rounded once, to a float32, before the
        # product, so no library's choice of intermediate precision reaches the bytes.
        centred = (raw >> np.uint64(40)).astype(np.float32) - np.float32(2**23)
        scale = np.float32(gain * (3.0 / (fan_in or columns)) ** 0.5 * 2.0**-23)
        return (centred * scale).reshape(rows, columns)


def _llama(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    vocab, head = config["vocab_size"], config["head_dim"]
    q_rows = config["num_attention_heads"] * head
    kv_rows = config["num_key_value_heads"] * head
    draw = _Uniform(seed).matrix
    ones = np.ones(hidden, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": draw(vocab, hidden, 1.0, fan_in=1),
        "lm_head.weight": draw(vocab, hidden, GAIN_HEAD),
        "model.norm.weight": ones,
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "self_attn.q_proj.weight": draw(q_rows, hidden, GAIN_QK),
            prefix + "self_attn.k_proj.weight": draw(kv_rows, hidden, GAIN_QK),
            prefix + "self_attn.v_proj.weight": draw(kv_rows, hidden, GAIN_VALUE),
            prefix + "self_attn.o_proj.weight": draw(hidden, q_rows, GAIN_VALUE),
            prefix + "mlp.gate_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.up_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.down_proj.weight": draw(hidden, inner, 1.0),
            prefix + "input_layernorm.weight": ones,
            prefix + "post_attention_layernorm.weight": ones,
        }
    return tensors


def _eagle(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """A draft model for a Llama of the same sizes: that one's first layer, subdued, over its hidden
    states, so that some drafts are right and some are not."""
    hidden = config["hidden_size"]
    tensors = {
        name.removeprefix("model."): tensor if "norm" in name else tensor * np.float32(0.3)
        for name, tensor in _llama(config, seed).items()
        if name.startswith("model.layers.0.") and "input_layernorm" not in name
    }
    joined = _Uniform(seed + 1).matrix(hidden, 2 * hidden, 1.0)
    joined[:, hidden:] += np.eye(hidden, dtype=np.float32)
    return tensors | {"fc.weight": joined}


def _gemma3(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    vocab, head = config["vocab_size"], config["head_dim"]
    q_rows = config["num_attention_heads"] * head
    kv_rows = config["num_key_value_heads"] * head
    draw = _Uniform(seed).matrix
    # The engine multiplies embeddings by sqrt(hidden), and its norms by one plus their weight.
    plain = np.zeros(hidden, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": draw(vocab, hidden, 1.0, fan_in=hidden),
        "lm_head.weight": draw(vocab, hidden, GAIN_HEAD),
        "model.norm.weight": plain,
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "self_attn.q_proj.weight": draw(q_rows, hidden, 1.0),
            prefix + "self_attn.k_proj.weight": draw(kv_rows, hidden, 1.0),
            prefix + "self_attn.v_proj.weight": draw(kv_rows, hidden, 1.0),
            prefix + "self_attn.o_proj.weight": draw(hidden, q_rows, 1.0),
            prefix + "self_attn.q_norm.weight": np.full(head, 1.0, dtype=np.float32),
            prefix + "self_attn.k_norm.weight": np.zeros(head, dtype=np.float32),
            prefix + "mlp.gate_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.up_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.down_proj.weight": draw(hidden, inner, 1.0),
            prefix + "input_layernorm.weight": plain,
            prefix + "post_attention_layernorm.weight": plain,
            prefix + "pre_feedforward_layernorm.weight": plain,
            prefix + "post_feedforward_layernorm.weight": plain,
        }
    return tensors


def _deepseek_v2(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Dense layers alone: as many as there are (first_k_dense_replace)."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    vocab, heads = config["vocab_size"], config["num_attention_heads"]
    latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    draw = _Uniform(seed).matrix
    ones = np.ones(hidden, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": draw(vocab, hidden, 1.0, fan_in=1),
        "lm_head.weight": draw(vocab, hidden, GAIN_HEAD),
        "model.norm.weight": ones,
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "self_attn.q_proj.weight": draw(heads * (nope + rope), hidden, GAIN_QK),
            prefix + "self_attn.kv_a_proj_with_mqa.weight": draw(latent + rope, hidden, 1.0),
            prefix + "self_attn.kv_a_layernorm.weight": np.ones(latent, dtype=np.float32),
            prefix + "self_attn.kv_b_proj.weight": draw(heads * (nope + value), latent, GAIN_VALUE),
            prefix + "self_attn.o_proj.weight": draw(hidden, heads * value, GAIN_VALUE),
            prefix + "mlp.gate_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.up_proj.weight": draw(inner, hidden, 1.0),
            prefix + "mlp.down_proj.weight": draw(hidden, inner, 1.0),
            prefix + "input_layernorm.weight": ones,
            prefix + "post_attention_layernorm.weight": ones,
        }
    return tensors


_BUILDERS = {"llama": _llama, "draft": _eagle, "gemma3_text": _gemma3, "deepseek_v2": _deepseek_v2}


def names() -> list[str]:
    """The models that have a configuration."""
    return sorted(p.parent.name for p in CONFIGS.glob("*/config.json"))


def build(name: str) -> Path:
    """Returns the folder of a model that vLLM can load, making it when it is missing."""
    source = CONFIGS / name / "config.json"
    if not source.is_file():
        raise FileNotFoundError(f"no model {name!r} in {CONFIGS}; there are: {', '.join(names())}")
    text = source.read_bytes()
    digest = hashlib.sha256(Path(__file__).read_bytes() + text).hexdigest()[:12]
    folder = cache_root() / f"models-{digest}" / name
    if (folder / "model.safetensors").is_file():
        return folder
    config = json.loads(text)
    kind = "draft" if "draft_of" in config else config["model_type"]
    if kind not in _BUILDERS:
        raise ValueError(f"{source}: no weights are made for model_type {kind!r}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: two processes may build the same model at once.
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    try:
        (partial / "config.json").write_bytes(text)
        save_file(_BUILDERS[kind](config, SEED), partial / "model.safetensors", {"format": "pt"})
        try:
            os.rename(partial, folder)
        except OSError:
            if not (folder / "model.safetensors").is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def main(arguments: list[str]) -> int:
    """Builds the named models, or all of them."""
    for name in arguments or names():
        try:
            print(build(name))
        except (FileNotFoundError, ValueError) as error:
            print(error, file=sys.stderr)
            return 64
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
