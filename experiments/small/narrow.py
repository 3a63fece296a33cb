"""What a model loses if keys and values have fewer bytes: ``python experiments/small/narrow.py --seed 0``.

The model of a seed reads windows of the test part with its keys and values in a `headspan.SpanCache` of each type.
"""

from __future__ import annotations

from typing import Any

import headspan as hs
import numpy as np
from model import CONTEXT, HEADS, WIDTH, Study, arguments, write

PIECE = 64  # tokens that are read together


def main() -> None:
    """Measure all types with the model of one seed."""
    args = arguments(__doc__.splitlines()[0], windows=32)
    study = Study(args, "test")

    def kept_as(dtype: str) -> Any:
        def attend(query: Any, key: Any, value: Any) -> Any:
            cache = hs.SpanCache(len(query), HEADS, WIDTH // HEADS, span=[CONTEXT] * HEADS, ramp=0, dtype=dtype)
            pieces = [slice(first, first + PIECE) for first in range(0, query.shape[2], PIECE)]
            return np.concatenate(
                [cache.attend(*(x[:, :, piece] for x in (query, key, value))) for piece in pieces], axis=2
            )

        return attend

    rows = [{"dtype": dtype, **study.excess(kept_as(dtype))} for dtype in ("float32", "float16", "bfloat16", "int8")]
    for row in rows:
        print(row, flush=True)
    write(f"narrow_{args.name}", {**study.about, "rows": rows})


if __name__ == "__main__":
    main()
