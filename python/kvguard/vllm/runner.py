# SPDX-License-Identifier: Apache-2.0
"""What stands between vLLM's runner and its work: a subclass for our runner's instance, a delegate
for its connector, and a gate around outputs. They hand everything through; the session decides."""

from __future__ import annotations

from typing import Any

from vllm.v1.outputs import AsyncModelRunnerOutput

from kvguard.vllm.probes import RUN_MODEL
from kvguard.vllm.session import Session, Ticket


class Off:
    """The session of a runner that is not armed."""

    active = open = False

    def guards(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return False


class RunnerHooks:
    """Mixed in front of the runner's own class. Adds no state to the instance.

    The hooks stand on the runner, not on the worker: some executors call the runner directly.
    """

    kvguard_hooks = True  # probes look past this class
    kvguard_session: Session | Off

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        session = self.kvguard_session
        if not session.guards(args, kwargs):
            return super().execute_model(scheduler_output, *args, **kwargs)
        return session.execute(super().execute_model, scheduler_output, args, kwargs)

    def prepare_attn(self, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        plan = super().prepare_attn(input_batch, *args, **kwargs)
        session = self.kvguard_session
        if session.open:
            session.planned(input_batch, plan)
        return plan

    def postprocess_sampled(self, *args: Any, **kwargs: Any) -> Any:
        session = self.kvguard_session
        if session.active:
            session.sampled(args, kwargs)
        return super().postprocess_sampled(*args, **kwargs)

    def sample_tokens(self, *args: Any, **kwargs: Any) -> Any:
        session = self.kvguard_session
        if not session.active:
            return super().sample_tokens(*args, **kwargs)
        return session.sample(super().sample_tokens, args, kwargs)

    def pool(self, *args: Any, **kwargs: Any) -> Any:
        session = self.kvguard_session
        if not session.active:
            return super().pool(*args, **kwargs)
        return session.sample(super().pool, args, kwargs)


def guarded_speculator(base: type, session: Session) -> type:
    """A subclass of a speculator's class, for one instance whose draft model writes KV of its own.

    It has one base: with a second one its instances' layout would differ from the base's.
    """

    def propose(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = base.propose(self, *args, **kwargs)  # type: ignore[attr-defined]
        if session.active:
            drafts = kwargs.get("num_speculative_tokens")
            session.drafted(max(1, self.num_speculative_steps if drafts is None else drafts))
        return result

    def _run_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if session.active:
            given = (*args, *(kwargs[name] for name in RUN_MODEL[len(args) :]))
            session.draft_pass(self.input_buffers, given)
        return base._run_model(self, *args, **kwargs)  # type: ignore[attr-defined]

    return type(
        f"Guarded{base.__name__}",
        (base,),
        {
            "propose": propose,
            "_run_model": _run_model,
            "kvguard_hooks": True,  # probes look past this class
            "__module__": __name__,
        },
    )


def guarded_class(base: type) -> type:
    """A subclass of the runner's class, for one instance; its session is set at arming."""
    return type(
        f"Guarded{base.__name__}",
        (RunnerHooks, base),
        {"kvguard_session": Off(), "__module__": __name__},
    )


class ConnectorDelegate:
    """Stands in for our runner's `kv_connector`; what it does not watch goes straight through,
    whatever this vLLM's connectors have."""

    def __init__(self, inner: Any, session: Session) -> None:
        self.__dict__["_kvguard_inner"] = inner
        self.__dict__["_kvguard_session"] = session

    @property
    def __class__(self) -> type:  # isinstance() sees the connector
        return type(self.__dict__["_kvguard_inner"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_kvguard_inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_kvguard_inner"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_kvguard_inner"], name)

    def pre_forward(self, *args: Any, **kwargs: Any) -> Any:
        session = self.__dict__["_kvguard_session"]
        if session.open:
            given = kwargs.get("attn_metadata", args[2] if len(args) > 2 else None)
            session.final(given)
        return self.__dict__["_kvguard_inner"].pre_forward(*args, **kwargs)

    def no_forward(self, *args: Any, **kwargs: Any) -> Any:
        session = self.__dict__["_kvguard_session"]
        if session.open:
            session.no_forward()
        return self.__dict__["_kvguard_inner"].no_forward(*args, **kwargs)


class GatedOutput(AsyncModelRunnerOutput):
    """An output that is held while its step is violated."""

    def __init__(self, inner: Any, ticket: Ticket) -> None:
        self._kvguard_inner = inner
        self._kvguard_ticket = ticket

    def get_output(self) -> Any:
        self._kvguard_ticket.check()
        return self._kvguard_inner.get_output()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_kvguard_inner"], name)


def gate(output: Any, ticket: Ticket) -> Any:
    """What leaves in raise mode. An asynchronous output is asked for later, on any thread."""
    if isinstance(output, AsyncModelRunnerOutput):
        return GatedOutput(output, ticket)
    ticket.check()
    return output
