# SPDX-License-Identifier: Apache-2.0
# Entry points. Each does its own set-up first (Debian packages, environments in ~/.cache/kvguard or $KVGUARD_CACHE).

.DEFAULT_GOAL := build
.PHONY: build demo demo-vllm test test-all check-slice check-layouts check-transformers check-belief check-lab bench fuzz mutate lint lint-all check-newcomer clean help

build:  ## Build everything; the command is left at build/kvguard
	@scripts/build.sh build

demo:  ## Replay recorded runs of a real engine, plant five faults, show each caught and explained
	@scripts/demo.sh

demo-vllm:  ## The same live: guard a real vLLM engine on this CPU
	@scripts/demo_vllm.sh

test:  ## Tier 1: build, lint, unit tests, the slice on a real engine, core against oracle; what CI runs
	@command -v python3 >/dev/null || scripts/setup.sh >/dev/null
	@scripts/tier.py test

test-all:  ## Tier 1, and clang-tidy, sanitizers, fuzzers, wheel and benchmarks
	@command -v python3 >/dev/null || scripts/setup.sh >/dev/null
	@scripts/tier.py test-all

check-slice:  ## The guard on a real vLLM engine, end to end
	@scripts/check_slice.sh

check-layouts:  ## Layouts of a real vLLM engine (docs/layouts), healthy and with planted faults
	@scripts/check_layouts.sh

check-transformers:  ## The guard on Hugging Face transformers, five releases of it
	@scripts/check_transformers.sh

check-belief:  ## The judge of the judge: an oracle written apart, generated programs, public bugs
	@scripts/check_belief.sh && scripts/check_parts.sh

check-lab:  ## The guard on the reference engine: healthy runs, every fault with 20 seeds, speed
	@scripts/check_lab.sh

bench:  ## What judging a step costs, beside plain Python, numpy and a bare loop
	@scripts/bench.sh

fuzz:  ## Run every fuzz target for an hour in all, going on where the last run ended (MINUTES=N: of this run)
	@scripts/setup.sh >/dev/null && scripts/fuzz_hours.py $(if $(MINUTES),--minutes $(MINUTES))

mutate:  ## Mutation testing of geometry, rules and mirror, goes on where it ended (MINUTES=30 bounds a run)
	@scripts/mutate.sh --jobs "$${KVGUARD_JOBS:-2}" $(if $(MINUTES),--minutes $(MINUTES))
	@scripts/mutate.sh --report

lint:  ## Format, include direction, licence lines, file length (scripts/lint.sh --fix mends what it can)
	@scripts/lint.sh

lint-all: build  ## The same, and clang-tidy on every source
	@scripts/lint.sh --tidy all

check-newcomer:  ## A fresh clone without caches: the demo in 10 minutes, the tests in 45, pip install .
	@scripts/newcomer.sh

clean:  ## Remove the build folders
	@rm -rf build build-*

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-15s %s\n", $$1, $$2 }'
