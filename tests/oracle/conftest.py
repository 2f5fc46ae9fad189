# SPDX-License-Identifier: Apache-2.0
"""The oracle is a plain package of the checkout: nothing has to be installed."""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "oracle"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
