"""A small view to point at, and numbers for larger ones."""

import headspan as hs
import numpy as np
from cases import normals

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", HOSTILE, " ", "\n", "dog"]


def float32_normals(*shape, seed=0):
    return normals(seed, *shape, dtype=np.float32)


def small_view(**options):
    q, k = float32_normals(2, 3, 10, 8)
    return hs.explore(q, k, **{"span": [2, 4, 8], "ramp": 3, "tokens": WORDS, **options})


def asked(page, name):
    """The value of a trait that a live page has asked Python for."""
    return page.evaluate("(name) => globalThis.asked?.[name]", name)


def send(page, view):
    """Send the part of a view to a live page in one message, as Python does."""
    arrays = {name: list(getattr(view, name)) for name in ("query", "key", "norms", "bias", "allowed", "maps")}
    page.evaluate(
        """([meta, arrays]) => {
          for (const [name, list] of Object.entries(arrays)) {
            models[0].set(name, new DataView(Uint8Array.from(list).buffer));
          }
          models[0].set("meta", meta);
        }""",
        [view.meta, arrays],
    )
