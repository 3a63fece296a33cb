"""Bad and good memories and indices of retrieved rows, for the query, key and value of bad_calls.py."""

import numpy as np
from bad_values import INF, NAN, ones

RETRIEVED_ROWS = {
    "memory_key": ones(1, 2, 9, 3),
    "memory_value": ones(1, 2, 9, 2),
    "indices": np.arange(80).reshape(1, 4, 5, 4) % 9,
}
MEMORY = {
    "memory_key": [
        ("None", TypeError, None),
        ("mixed dtypes", TypeError, ones(1, 2, 9, 3, dtype=np.float32)),
        ("other head_dim", ValueError, ones(1, 2, 9, 2)),
        ("other heads than key", ValueError, ones(1, 4, 9, 3)),
        ("fewer axes", ValueError, ones(2, 9, 3)),
        ("one axis", ValueError, ones(3)),
    ],
    "memory_value": [
        ("other rows", ValueError, ones(1, 2, 8, 2)),
        ("dims of key", ValueError, ones(1, 2, 9, 3)),
        ("integers", TypeError, ones(1, 2, 9, 2, dtype=int)),
    ],
    "indices": [
        ("below none", ValueError, np.full((1, 4, 5, 4), -2)),
        ("beyond the rows", ValueError, np.full((1, 4, 5, 4), 9)),
        ("of other queries", ValueError, np.zeros((1, 4, 6, 4), int)),
        ("of key heads", ValueError, np.zeros((1, 2, 5, 4), int)),
        ("without k", ValueError, np.zeros((1, 4, 5), int)),
        ("floats", TypeError, np.zeros((1, 4, 5, 4))),
        ("None", TypeError, None),
    ],
    "gate": [
        ("NaN", ValueError, NAN),
        ("infinite", ValueError, -INF),
        ("heads do not match", ValueError, ones(3)),
        ("one a token", ValueError, ones(1, 4, 5)),
        ("string", TypeError, "open"),
    ],
}
