# SPDX-License-Identifier: Apache-2.0
"""Makes the committed cut from the public Mooncake conversation trace.

usage: cut.py FULL_TRACE > mooncake_conversation_cut.jsonl

Rows keep the trace's order, times and text. A row is taken when, scaled, its prompt has at most
`MAX_PROMPT` tokens, its answer at least `MIN_ANSWER` and both together at most `MAX_TOTAL`: in a
pool of 20 blocks it is growing answers that run into each other, and a prompt must leave room for
others. Conversations (rows with the same second block id; the first is the system prompt that all
share) with fewer than two such turns are left out, because they share nothing.
"""

from __future__ import annotations

import collections
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from rig.workload import scaled

SOURCE_SHA256 = "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
MAX_PROMPT = 104
MIN_ANSWER = 18
MAX_TOTAL = 136


def main(arguments: list[str]) -> int:
    """Writes the cut to standard output."""
    if len(arguments) != 1:
        print("usage: cut.py FULL_TRACE", file=sys.stderr)
        return 64
    try:
        data = Path(arguments[0]).read_bytes()
    except OSError as error:
        print(error, file=sys.stderr)
        return 65
    if hashlib.sha256(data).hexdigest() != SOURCE_SHA256:
        print(f"{arguments[0]}: not the trace this cut was made from (sha256)", file=sys.stderr)
        return 65
    lines = data.decode().splitlines()
    turns: dict[int, list[int]] = collections.defaultdict(list)
    for index, line in enumerate(lines):
        row = json.loads(line)
        prompt, answer = scaled(row["input_length"]), scaled(row["output_length"])
        fits = prompt <= MAX_PROMPT and answer >= MIN_ANSWER and prompt + answer <= MAX_TOTAL
        # Up to two blocks the second may be all there is of a user's own text.
        if fits and len(row["hash_ids"]) >= 3:
            turns[row["hash_ids"][1]].append(index)
    chosen = sorted(index for own in turns.values() if len(own) >= 2 for index in own)
    for index in chosen:
        print(lines[index])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
