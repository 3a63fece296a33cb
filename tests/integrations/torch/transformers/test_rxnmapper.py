"""RXNMapper, a model that others trained and that a Python package of 3 MB contains: `nox -s peers` installs it."""

import importlib.util

import atlas  # noqa: F401 - the folder of the modules below
import headspan as hs
import numpy as np
import pytest
from peers import torch

import headspan.torch  # isort: skip

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rxnmapper") is None,
    reason="needs rxnmapper==0.4.3, a package of 3 MB: `nox -s peers` installs it",
)
headspan.torch.register()
TOLERANCE = 0.05


@pytest.fixture(scope="module")
def reactions():
    return pytest.importorskip("reactions")


@pytest.fixture
def loaded(reactions):
    return reactions.load()


def batches(reactions, loaded, count, seed=0):
    """Batches of four reactions with the mapping of the model with full attention, those of distant atoms first."""
    model, vocabulary = loaded
    rng = np.random.default_rng(seed)
    drawn = [reactions.reaction(rng, slice(None)) for _ in range(4 * count)]
    drawn.sort(key=lambda one: -farthest_pair(reactions.batch_of([one], vocabulary)))
    result = [reactions.batch_of(drawn[start : start + 4], vocabulary) for start in range(0, 4 * count, 4)]
    for batch in result:
        batch.mapped.extend(reactions.mapped(model, batch))
    return result


def farthest_pair(batch):
    (one,), (known,) = batch.reactions, batch.known
    return np.abs(one.product - one.reactants[known]).max()


@pytest.mark.parametrize(
    ("reaction", "pairs", "certainty"),
    [
        ("C(C)O.BrC(C)>>CCOCC", [1, 0, 2, 4, 5], 0.9754605679009868),
        ("CCO.BrCFC>>CCOCFC", [0, 1, 2, 4, 5, 6], 0.9730222157275086),
        ("[1*]C=C.O>>*CCO", [0, 1, 2, 3], 0.9988284870307568),
    ],
)
def test_the_mapping_is_that_of_the_package(reactions, loaded, reaction, pairs, certainty):
    """The certainties are those that the tests of the package expect."""
    model, vocabulary = loaded
    batch = reactions.batch_of([(reaction, pairs)], vocabulary)
    with torch.no_grad():
        attention = reactions.attention_of(model, batch.ids, batch.mask)[0]
    atoms, certain = batch.reactions[0].mapped(attention)
    assert atoms.tolist() == pairs
    assert certain == pytest.approx(certainty, abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("other", ["eager", "sdpa"])
def test_the_states_are_those_of_transformers(reactions, loaded, other):
    (batch,) = batches(reactions, loaded, 2)[:1]
    model = loaded[0]
    states = model(batch.ids, attention_mask=batch.mask.long()).last_hidden_state
    model.set_attn_implementation(other)
    expected = model(batch.ids, attention_mask=batch.mask.long()).last_hidden_state
    torch.testing.assert_close(states[batch.mask], expected[batch.mask], rtol=0, atol=1e-5)


def test_almost_all_atoms_are_mapped_to_the_atom_that_they_are(reactions, loaded):
    assert reactions.agreement(loaded[0], batches(reactions, loaded, 4, seed=1)) > 0.99


def test_a_fit_keeps_its_tolerance_on_other_reactions(reactions, loaded):
    """Their atoms are no farther apart: beyond what the fit has seen, an atom and its origin may be out of reach."""
    model = loaded[0]
    drawn = batches(reactions, loaded, 12)
    fitted, held_out = drawn[:8], drawn[8:]
    options = {"tokens": reactions.TOKENS, "ramp": 4, "tolerance": TOLERANCE, "steps": 16, "eval_windows": 8}
    fit = headspan.torch.fit_spans(model, fitted, held_out=held_out, loss=reactions.loss, **options)
    assert fit.fitted_after <= (1 + TOLERANCE) * fit.fitted_before
    assert fit.excess <= TOLERANCE
    assert fit.share < 0.95
    assert not fit.uniform_wins
    counted = hs.cost(tokens=96, num_heads=96, head_dim=32, span=fit.spans.ravel(), ramp=4, causal=False)
    assert fit.pairs == counted.pairs
    with torch.no_grad():
        losses = [float(reactions.loss(model, batch)) for batch in held_out]
    assert np.mean(losses) == pytest.approx(fit.loss_after, rel=1e-5)
    assert reactions.agreement(model, held_out) > 0.99
