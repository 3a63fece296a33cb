"""Options can be arrays of any memory layout: results have the same bits as with plain arrays."""

import headspan as hs
import numpy as np
import pytest
from option_cases import OPTIONS, arguments_of


def of_records(array):
    records = np.zeros(array.shape, np.dtype([("before", np.int8), ("number", array.dtype)]))
    records["number"] = array
    return records["number"]


def every_other(array):
    return np.repeat(array, 2, axis=-1)[..., ::2]


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(0, -1)).swapaxes(0, -1),
    "negative strides": lambda a: np.flip(np.ascontiguousarray(np.flip(a))),
    "every other": every_other,
    "shared by all": lambda a: np.broadcast_to(a[:1], a.shape),
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "not aligned": of_records,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}
ARRAYS = {
    case: [name for name, option in options.items() if np.ndim(option) and name != "gate_block_size"]
    for case, options in OPTIONS.items()
}
CASES = [case for case, names in ARRAYS.items() if names]


def results_of(arguments):
    """Return all results and gradients; only their bits count."""
    out, vjp = hs.attention_vjp(**arguments, return_lse=True)
    grad_out = np.linspace(-1, 1, out[0].size, dtype=out[0].dtype).reshape(out[0].shape)
    without_value = {name: value for name, value in arguments.items() if name != "value"}
    return [*out, *(g for g in vjp(grad_out) if g is not None), hs.attention_weights(**without_value)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_options(case, layout):
    plain = arguments_of(case, np.float32)
    laid_out = {name: LAYOUTS[layout](np.asarray(plain[name])) for name in ARRAYS[case]}
    natives = {name: array.dtype.newbyteorder("=") for name, array in laid_out.items()}
    copies = {name: np.array(array, natives[name], order="C") for name, array in laid_out.items()}
    for ours, expected in zip(results_of(plain | laid_out), results_of(plain | copies), strict=True):
        np.testing.assert_array_equal(ours, expected)
        assert ours.dtype == expected.dtype
