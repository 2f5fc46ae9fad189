# SPDX-License-Identifier: Apache-2.0
"""A KV connector whose synchronous load can fail: vLLM's own ExampleConnector, and bad luck.

Named to vLLM by `kv_connector="FailConnector"` and `kv_connector_module_path="rig.fail_connector"`.
Extra configuration beside the base's `shared_storage_path`: `fail_blocks`, indices into the blocks
of a load. The first load of a prompt leaves garbage in those blocks and reports them, as a
transfer does that breaks in the middle; everything else is the base's.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

GARBAGE = 7.0


class FailConnector(ExampleConnector):
    """Both halves of the connector; only the worker's half loads."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        extra = self._kv_transfer_config.get_from_extra_config
        self._fail_blocks: list[int] = list(extra("fail_blocks", []))
        self._seen: set[tuple[int, ...]] = set()
        self._errors: set[int] = set()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads, then spoils and reports the chosen blocks."""
        super().start_load_kv(forward_context, **kwargs)
        for request in self._get_connector_metadata().requests:
            prompt = tuple(request.token_ids.tolist())
            if request.is_store or not self._fail_blocks or prompt in self._seen:
                continue
            self._seen.add(prompt)
            blocks = list(dict.fromkeys((request.slot_mapping // self._block_size).tolist()))
            bad = [blocks[index] for index in self._fail_blocks]
            for layer in forward_context.no_compile_layers.values():
                if getattr(layer, "kv_cache", None) is not None:
                    layer.kv_cache[bad] = GARBAGE
            self._errors.update(bad)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks spoiled since the last call."""
        errors, self._errors = self._errors, set()
        return errors
