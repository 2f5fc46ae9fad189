# SPDX-License-Identifier: Apache-2.0
"""The guard for Hugging Face transformers' continuous batching.

with kvguard.transformers.guard(model, action="raise") as g:
    outputs = model.generate_batch(inputs, generation_config=...)
g.verdict, g.findings, g.coverage
"""

from kvguard.transformers.guard import Finding, Guard, guard

__all__ = ["Finding", "Guard", "guard"]
