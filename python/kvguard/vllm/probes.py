# SPDX-License-Identifier: Apache-2.0
"""Whether a runner is one that this version can guard. Each probe asks the objects themselves,
never a version string, and each failure has a reason that a person can act on."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from dataclasses import dataclass, field
from typing import Any

from kvguard import _core
from kvguard.geometry import Geometry, Group, Pool

SCHEDULER_OUTPUT_MODULE = "vllm.v1.core.sched.output"
INPUT_BATCH_MODULE = "vllm.v1.worker.gpu.input_batch"
NULL_BLOCK = (
    0  # vLLM's BlockPool takes its first block as the null block; no worker-side object says so
)
INPUT_BATCH_FIELDS = (
    "req_ids",
    "num_reqs",
    "num_reqs_after_padding",
    "num_tokens",
    "num_tokens_after_padding",
    "query_start_loc",
    "seq_lens",
    "positions",
)
RUNNER_ATTRIBUTES = (
    "device",
    "kv_cache_config",
    "block_tables",
    "attn_groups",
    "kv_connector",
    "max_num_reqs",
    "max_num_tokens",
    "max_model_len",
)
LOOKUP_METHODS = ("ngram", "ngram_gpu")
MODEL_METHODS = ("eagle",)
RUN_MODEL = ("num_tokens", "attn_metadata", "slot_mappings")  # of a speculator's _run_model
GROUP_KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "full",
    "SlidingWindowSpec": "window",
}
FINAL_UNSEEN = "final-metadata-unseen"
GROUP_UNSEEN = "group-unseen"
FINAL_TABLE_UNIT = "final-table-in-kernel-blocks"
FINAL_ATTRIBUTES = {
    "table": ("block_table", "block_table_tensor"),
    "slots": ("slot_mapping",),
    "seq_lens": ("seq_lens",),
    "query_start": ("query_start_loc",),
}


# Metadata that keep rows with one token apart from the others, as those of latent caches do.
FINAL_PARTS = (
    "num_decodes",
    "num_decode_tokens",
    "decode",
    "prefill",
    "query_start_loc",
    "slot_mapping",
)


class NotArmed(Exception):  # noqa: N818  the word that is printed
    """Why the guard does not judge this engine. The engine runs."""


@dataclass(slots=True)
class FinalLayer:
    """Layers of one backend in one cache group, which share a metadata object."""

    group: int
    layers: tuple[str, ...]
    with_table: bool


@dataclass(slots=True)
class Facts:
    """What the probes found."""

    geometry: Geometry
    dummy_run_index: (
        int  # of `dummy_run` among execute_model's positional arguments; -1: by keyword only
    )
    final_layers: list[FinalLayer] = field(default_factory=list)
    slots_by_layer: bool = False  # the forward takes each layer's slots from its own context
    outcome_arguments: tuple[int, int] = (0, 0)  # of postprocess_sampled: sampled, rejected
    draft_layers: list[FinalLayer] = field(default_factory=list)  # of a model that drafts
    row_columns: bool = False  # the runner tells how many columns of a row are live
    summary: str = ""


def fail(reason: str) -> None:
    raise NotArmed(reason)


def attribute(owner: Any, name: str, what: str) -> Any:
    """An attribute that this version needs."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise NotArmed(f"{what} has no '{name}'; this vLLM is not one that is known") from None


def engines_own(owner: Any, name: str) -> Any:
    """A method as the engine has it, past the guard's own hooks; None where it has none."""
    if name in getattr(owner, "__dict__", {}):
        return owner.__dict__[name]
    for cls in type(owner).__mro__:
        if name in vars(cls) and not vars(cls).get("kvguard_hooks", False):
            found = vars(cls)[name]
            return found.__get__(owner) if hasattr(found, "__get__") else found
    return None


def parameters(owner: Any, name: str, what: str) -> list[inspect.Parameter]:
    """The parameters of a bound method that this version needs."""
    method = engines_own(owner, name)
    if not callable(method) or not callable(getattr(owner, name, None)):
        fail(f"{what} has no method '{name}'; this vLLM is not one that is known")
    try:
        return list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError) as error:
        raise NotArmed(f"the arguments of {what}.{name} cannot be read: {error}") from None


def required(params: list[inspect.Parameter]) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in params if p.kind in positional and p.default is inspect.Parameter.empty]


def probe_configuration(vllm_config: Any, runner: Any) -> None:
    """Layouts that have no rules in this version, by name."""
    parallel = attribute(vllm_config, "parallel_config", "VllmConfig")
    for name, what in (
        ("tensor_parallel_size", "tensor parallelism"),
        ("pipeline_parallel_size", "pipeline parallelism"),
        ("decode_context_parallel_size", "decode context parallelism"),
        ("prefill_context_parallel_size", "prefill context parallelism"),
        ("world_size", "several ranks"),
    ):
        size = getattr(parallel, name, 1)
        if isinstance(size, int) and size > 1:
            fail(f"{what} ({name} {size}) has no rules in this version")
    if getattr(parallel, "data_parallel_size", 1) > 1:
        fail("data parallelism with collectives between the ranks has no rules in this version")
    if getattr(parallel, "enable_dbo", False) or getattr(runner, "ubatch_runner", None) is not None:
        fail("dual-batch overlap has no rules in this version")
    if getattr(runner, "is_encoder_decoder", False):
        fail("encoder-decoder models have no rules in this version")
    if getattr(runner, "pcp_manager", None) is not None:
        fail("prefill context parallelism has no rules in this version")


def probe_speculation(vllm_config: Any, runner: Any) -> tuple[int, tuple[int, int]]:
    """The most drafts of a step, and where postprocess_sampled takes what was sampled and what was
    rejected."""
    config = getattr(vllm_config, "speculative_config", None)
    steps = getattr(runner, "num_speculative_steps", 0)
    if config is None:
        if steps:
            fail("a model with draft tokens of its own has no rules in this version")
        return 0, (0, 0)
    method = getattr(config, "method", "?")
    speculator = getattr(runner, "speculator", None)
    known = LOOKUP_METHODS if not drafts_by_model(runner) else MODEL_METHODS
    if method not in known or speculator is None:
        fail(f"speculative decoding by '{method}' has no rules in this version")
    if getattr(runner, "adaptive_verification", None) is not None:
        fail("adaptive verification leaves out drafts that were scheduled: no rules")
    what = type(runner).__name__
    names = [p.name for p in parameters(runner, "postprocess_sampled", what)]
    if not {"num_sampled", "num_rejected"}.issubset(names):
        fail(f"{what}.postprocess_sampled takes {names}; this vLLM is not one that is known")
    return steps, (names.index("num_sampled"), names.index("num_rejected"))


def drafts_by_model(runner: Any) -> bool:
    """Whether what drafts writes KV of its own."""
    speculator = getattr(runner, "speculator", None)
    return any(hasattr(speculator, name) for name in ("block_tables", "draft_attn_layer_names"))


def probe_speculator(runner: Any, num_groups: int) -> list[FinalLayer]:
    """The layers of a draft model, whose passes are seen when its method runs it."""
    speculator = runner.speculator
    what = type(speculator).__name__
    names = [p.name for p in parameters(speculator, "_run_model", what)][: len(RUN_MODEL)]
    if names != list(RUN_MODEL):
        fail(f"{what}._run_model takes {names} first, not {list(RUN_MODEL)}")
    parameters(speculator, "propose", what)
    if not getattr(speculator, "advance_draft_positions", False):
        fail(f"{what} drafts without moving on: no rules in this version")
    attribute(attribute(speculator, "input_buffers", what), "positions", f"{what}.input_buffers")
    layers, gaps = probe_final(attribute(speculator, "attn_groups", what), num_groups)
    if not layers or set(gaps) - {GROUP_UNSEEN}:
        fail(f"the metadata of {what} cannot be read: {gaps}")
    return layers


def probe_device(runner: Any) -> None:
    kind = getattr(runner.device, "type", str(runner.device))
    if kind != "cpu":
        fail(f"plans on device '{kind}' need staging, which this version does not have")


def probe_runner_methods(runner: Any) -> int:
    """The methods that the guard extends; answers where execute_model takes dummy_run."""
    what = type(runner).__name__
    params = parameters(runner, "execute_model", what)
    if required(params) != ["scheduler_output"]:
        fail(f"{what}.execute_model needs {required(params)}, not ['scheduler_output']")
    names = [p.name for p in params]
    if "dummy_run" not in names:
        fail(f"{what}.execute_model has no 'dummy_run': real batches cannot be told from dummies")
    dummy = params[names.index("dummy_run")]
    index = names.index("dummy_run") if dummy.kind is not inspect.Parameter.KEYWORD_ONLY else -1
    params = parameters(runner, "prepare_attn", what)
    if required(params) != ["input_batch"]:
        fail(f"{what}.prepare_attn needs {required(params)}, not ['input_batch']")
    params = parameters(runner, "sample_tokens", what)
    if len(params) != 1 or len(required(params)) > 1:
        fail(f"{what}.sample_tokens takes {[p.name for p in params]}, not one argument")
    return index


def probe_connector(connector: Any) -> None:
    for name in ("pre_forward", "no_forward"):
        parameters(connector, name, type(connector).__name__)


def probe_input_batch() -> None:
    batch = attribute(importlib.import_module(INPUT_BATCH_MODULE), "InputBatch", INPUT_BATCH_MODULE)
    if not dataclasses.is_dataclass(batch):
        fail("InputBatch is no dataclass; this vLLM is not one that is known")
    names = {f.name for f in dataclasses.fields(batch)}
    missing = [name for name in INPUT_BATCH_FIELDS if name not in names]
    if missing:
        fail(f"InputBatch has no {missing}; this vLLM is not one that is known")


def probe_scheduler_output() -> list[str]:
    """Standing gaps for fields that are not known: at their defaults they say nothing."""
    module = importlib.import_module(SCHEDULER_OUTPUT_MODULE)
    types = [
        attribute(module, name, SCHEDULER_OUTPUT_MODULE)
        for name in ("SchedulerOutput", "NewRequestData", "CachedRequestData")
    ]
    for each in types:
        if not dataclasses.is_dataclass(each):
            fail(f"{each.__name__} is no dataclass; this vLLM is not one that is known")
    probed = _core.vllm.probe_types(*types)
    if probed["missing"]:
        fail(f"the scheduler output has no {probed['missing']}; this vLLM is not one that is known")
    return [f"unknown-field:{name}" for name in probed["unknown"]]


def probe_group(index: int, group: Any, tables: Any) -> Group:
    """One cache group: its kind, and the unit of its table by what the table itself says."""
    spec = group.kv_cache_spec
    kind = type(spec).__name__
    if kind not in GROUP_KINDS:
        fail(f"cache group {index} is a {kind}, which has no rules in this version")
    if getattr(group, "host_resident", False):
        fail(f"cache group {index} lies in host memory: no rules in this version")
    if not getattr(spec, "uses_slot_mapping", True):
        fail(f"cache group {index} ({kind}) has no slot mapping: no rules in this version")
    if getattr(spec, "tokens_per_state", 1) != 1:
        fail(f"cache group {index} stores {spec.tokens_per_state} tokens a state: no rules")
    block_size = attribute(spec, "block_size", kind)
    sizes = attribute(tables, "block_sizes", "BlockTables")
    if index >= len(sizes):
        fail(f"BlockTables has {len(sizes)} groups, the cache more")
    kernel_sizes = getattr(tables, "kernel_block_sizes", None)
    kernel_block_size = block_size if kernel_sizes is None else kernel_sizes[index]
    if kernel_sizes is None and sizes[index] != block_size:
        fail(f"group {index}: the table's block size is {sizes[index]}, the cache's {block_size}")
    if kernel_block_size <= 0 or block_size % kernel_block_size:
        fail(f"group {index}: kernel block size {kernel_block_size} does not divide {block_size}")
    table = probe_table(index, tables)
    per_block = block_size // kernel_block_size
    window = 0
    if GROUP_KINDS[kind] == "window":
        window = attribute(spec, "sliding_window", kind)
        if not isinstance(window, int) or window < 1:
            fail(f"cache group {index} has a window of {window} tokens")
    return Group(
        kind=GROUP_KINDS[kind],
        block_size=block_size,
        kernel_block_size=kernel_block_size,
        table_unit="block" if per_block == 1 else "kernel-block",
        max_columns=table.shape[1] // per_block,
        window=window,
        retained=getattr(spec, "extra_retained_tokens", 0),
        num_layers=len(group.layer_names),
        flags=_core.GROUP_PAD_ROWS_NULL,
    )


def probe_table(index: int, tables: Any) -> Any:
    rows = attribute(tables, "input_block_tables", "BlockTables")
    table = rows[index]
    dtype = str(getattr(table, "dtype", "?"))
    if dtype not in ("torch.int32", "torch.int64"):
        fail(f"group {index}: block ids are {dtype}, not int32 or int64")
    slots = attribute(tables, "slot_mappings", "BlockTables")
    dtype = str(getattr(slots, "dtype", "?"))
    if dtype not in ("torch.int32", "torch.int64"):
        fail(f"slots are {dtype}, not int32 or int64")
    return table


def probe_final(groups: Any, num_groups: int) -> tuple[list[FinalLayer], list[str]]:
    """Which layers show each group's final metadata, and the standing gaps where none can."""
    layers: list[FinalLayer] = []
    gaps: list[str] = []
    for index in range(num_groups):
        backends = groups[index] if index < len(groups) else []
        if not backends:
            gaps.append(GROUP_UNSEEN)
        for backend in backends:
            names = getattr(backend, "layer_names", None)
            readable = shows_tensors(backend) if names else False
            if not readable:
                gaps.append(FINAL_UNSEEN)
            if readable is False:
                continue
            with_table = getattr(backend, "kernel_block_size", None) is None
            if not with_table:
                gaps.append(FINAL_TABLE_UNIT)
            layers.append(FinalLayer(index, tuple(names), with_table))
    return layers, sorted(set(gaps))


def shows_tensors(backend: Any) -> bool | None:
    """Whether the backend's metadata class has the tensors by name; None where its class cannot be
    told beforehand: its metadata are looked at, and what they do not show is a standing gap."""
    try:
        builder = backend.get_metadata_builder(0)
    except (AttributeError, IndexError, TypeError):
        return False
    made = getattr(builder, "metadata_cls", None)
    for base in inspect.getmro(type(builder)) if made is None else ():
        for generic in base.__dict__.get("__orig_bases__", ()):
            for argument in getattr(generic, "__args__", ()):
                made = argument if made is None and dataclasses.is_dataclass(argument) else made
    if not dataclasses.is_dataclass(made):
        return None
    names = {f.name for f in dataclasses.fields(made)}
    parts = names.issuperset(FINAL_PARTS)
    return parts or all(names.intersection(known) for known in FINAL_ATTRIBUTES.values())


def probe_forward_context() -> bool:
    """Whether layers take their slots from the forward context, and not from their metadata."""
    context = getattr(importlib.import_module("vllm.forward_context"), "ForwardContext", None)
    if not dataclasses.is_dataclass(context):
        fail("ForwardContext is no dataclass; this vLLM is not one that is known")
    return "slot_mapping" in {f.name for f in dataclasses.fields(context)}


def probe(worker: Any) -> Facts:
    """All probes. Raises NotArmed with the first reason."""
    runner = worker.model_runner
    vllm_config = worker.vllm_config
    for name in RUNNER_ATTRIBUTES:
        attribute(runner, name, type(runner).__name__)
    probe_configuration(vllm_config, runner)
    probe_device(runner)
    max_drafts, outcome_arguments = probe_speculation(vllm_config, runner)
    dummy_run_index = probe_runner_methods(runner)
    probe_connector(attribute(runner, "kv_connector", type(runner).__name__))
    probe_input_batch()
    gaps = probe_scheduler_output()

    cache = runner.kv_cache_config
    tables = runner.block_tables
    if getattr(tables, "redirect_writes_to_null_block", False):
        fail("elastic expert parallelism redirects writes to the null block: no rules")
    if not cache.kv_cache_groups:
        fail("the model has no KV cache")
    groups = [probe_group(i, group, tables) for i, group in enumerate(cache.kv_cache_groups)]
    final_layers, final_gaps = probe_final(runner.attn_groups, len(groups))
    if getattr(runner, "fast_prefill", None) is not None:
        final_layers, final_gaps = [], [FINAL_UNSEEN]  # some layers are given a reduced batch
    # A group without layers of the target's is not seen; one without the draft model's is not its.
    gaps += sorted({FINAL_UNSEEN if gap == GROUP_UNSEEN else gap for gap in final_gaps})
    draft_layers: list[FinalLayer] = []
    if max_drafts and drafts_by_model(runner):
        draft_layers = probe_speculator(runner, len(groups))
    scheduler = attribute(vllm_config, "scheduler_config", "VllmConfig")
    flags = 0
    if getattr(scheduler, "async_scheduling", False):
        flags |= _core.ENGINE_ASYNC
    if getattr(vllm_config.cache_config, "enable_prefix_caching", False):
        flags |= _core.ENGINE_PREFIX_CACHE
        gaps.append("prefix-content-unproved")
    if getattr(vllm_config, "kv_transfer_config", None) is not None:
        flags |= _core.ENGINE_CONNECTOR
        gaps.append("external-unproved")
    if getattr(cache, "needs_kv_cache_zeroing", False):
        gaps.append("copy-not-judged")
    num_blocks = getattr(tables, "num_blocks", None)
    version = getattr(importlib.import_module("vllm"), "__version__", "")
    geometry = Geometry(
        engine="vllm",
        engine_version=str(version),
        pools=[Pool(num_blocks=cache.num_blocks, null_block=NULL_BLOCK)],
        groups=groups,
        max_rows=runner.max_num_reqs,
        max_tokens=runner.max_num_tokens,
        max_model_len=runner.max_model_len,
        num_lookahead=getattr(vllm_config, "num_lookahead_tokens", 0),
        max_drafts=max_drafts,
        pad_slot=importlib.import_module("vllm.v1.attention.backends.utils").PAD_SLOT_ID,
        flags=flags,
        rank=worker.rank,
        num_ranks=1,
        standing_gaps=gaps,
    )
    kinds = ", ".join(
        f"{g.kind}{f' of {g.window}' if g.window else ''} block {g.block_size}" for g in groups
    )
    return Facts(
        geometry=geometry,
        dummy_run_index=dummy_run_index,
        final_layers=final_layers,
        slots_by_layer=probe_forward_context(),
        outcome_arguments=outcome_arguments,
        draft_layers=draft_layers,
        row_columns=hasattr(num_blocks, "np"),
        summary=f"groups={len(groups)} ({kinds}) blocks={cache.num_blocks}"
        + (f" drafts={max_drafts} a step" if max_drafts else ""),
    )
