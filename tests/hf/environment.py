# SPDX-License-Identifier: Apache-2.0
"""Prepares this process for transformers on a CPU; must come before its first import."""

from __future__ import annotations

import os

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",  # no threads of a library that is not used
    "TORCHDYNAMO_DISABLE": "1",  # torch.compile is the function itself: padding without a compiler
    "OMP_NUM_THREADS": "1",  # sums of fixed order: equal runs give equal tokens
    "CUDA_VISIBLE_DEVICES": "",  # the same machine everywhere
}


def activate() -> None:
    os.environ.update(SETTINGS)
