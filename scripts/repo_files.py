# SPDX-License-Identifier: Apache-2.0
"""Which files the lints look at: what git tracks or would track; without git, the whole tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SKIPPED_FOLDERS = {".git", "build", "dist", "__pycache__", ".pytest_cache", ".ruff_cache"}


def repo_files(root: Path = ROOT) -> list[str]:
    """Paths relative to root, sorted; only files that exist."""
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if git.returncode == 0 and (root / ".git").exists():
        names = {name.decode() for name in git.stdout.split(b"\0") if name}
    else:
        names = set()
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = [
                s for s in subfolders if s not in _SKIPPED_FOLDERS and not s.startswith("build-")
            ]
            names |= {os.path.relpath(os.path.join(folder, f), root) for f in files}
    return sorted(n for n in names if (root / n).is_file() and not (root / n).is_symlink())
