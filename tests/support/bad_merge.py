"""Bad parts of a merge, and good ones."""

import numpy as np
from bad_values import INF, ones

MERGE = {"outs": [ones(2, 5, 3), ones(2, 5, 3)], "lses": [ones(2, 5), ones(2, 5)]}
MERGED = {
    "outs": [
        ("empty", ValueError, []),
        ("one too few", ValueError, MERGE["outs"][:1]),
        ("shapes differ", ValueError, [ones(2, 5, 3), ones(2, 4, 3)]),
        ("mixed dtypes", TypeError, [ones(2, 5, 3), ones(2, 5, 3, dtype=np.float32)]),
        ("integers", TypeError, [ones(2, 5, 3, dtype=int)] * 2),
        ("number", TypeError, 3.0),
    ],
    "lses": [
        ("one too many", ValueError, [ones(2, 5)] * 3),
        ("other shape", ValueError, [ones(2, 5), ones(2, 6)]),
        ("extra axis", ValueError, [ones(2, 5, 1)] * 2),
        ("mixed dtypes", TypeError, [ones(2, 5, dtype=np.float32)] * 2),
        ("infinite", ValueError, [ones(2, 5), np.full((2, 5), INF)]),
    ],
}
