"""The parts of the atlas of reach that need no package with a model, on random models of the same shapes."""

import struct

import atlas  # noqa: F401 - the folder of the modules below
import numpy as np
import pytest
from peers import make_loud, torch, transformers

import headspan.torch  # isort: skip
import mapping
import reactions
import smiles
import whisper_file
from transformers.models.whisper.modeling_whisper import WhisperEncoder

headspan.torch.register()


def bert(layers, heads):
    sizes = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": 4 * heads}
    config = transformers.BertConfig(vocab_size=30, intermediate_size=16, **sizes)
    return transformers.BertModel(config, add_pooling_layer=False)


def whisper():
    sizes = {"encoder_layers": 4, "encoder_attention_heads": 6, "d_model": 24, "encoder_ffn_dim": 16}
    return WhisperEncoder(transformers.WhisperConfig(num_mel_bins=8, is_encoder_decoder=False, **sizes))


MODELS = {"sentences": (bert, 6, 12), "antibodies": (bert, 8, 8), "speech": (whisper,)}


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_same_shapes_compute_what_eager_does(name):
    torch.manual_seed(0)
    make, *sizes = MODELS[name]
    model = make(*sizes).eval()
    make_loud(model)
    inputs = torch.randn(1, 8, 3000) if name == "speech" else torch.randint(30, (2, 40))
    states = {}
    for kind in ("eager", "headspan"):
        model.set_attn_implementation(kind)
        states[kind] = model(inputs).last_hidden_state
    torch.testing.assert_close(states["headspan"], states["eager"], rtol=0, atol=1e-5)
    headspan.torch.set_spans(model, 0, ramp=1)
    assert (model(inputs).last_hidden_state - states["eager"]).abs().max() > 2e-5


@torch.no_grad()
def test_a_span_reaches_as_far_ahead_as_back():
    torch.manual_seed(0)
    model = bert(1, 4).eval()
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[0, 3, 5, 5]], ramp=1)
    ids = torch.randint(29, (1, 30))
    changed = ids.clone()
    changed[0, 15] = 29
    moved = (model(ids).last_hidden_state != model(changed).last_hidden_state).any(dim=-1)[0]
    assert moved.nonzero().ravel().tolist() == list(range(10, 21))


def test_bonds_are_those_of_chains_branches_and_rings():
    tokens = smiles.tokens_of("CC(=O)Nc1ccc[nH]1.[Na+]")
    bonds = {(int(a), int(b)) for a, b in np.argwhere(smiles.bonds_of(tokens)) if a < b}
    assert bonds == {(0, 1), (1, 2), (1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (4, 8)}
    elements = [smiles.element_of(token) for token in tokens if smiles.is_atom(token)]
    assert elements == ["C", "C", "O", "N", "C", "C", "C", "C", "N", "Na"]
    with pytest.raises(ValueError, match="not SMILES: C!"):
        smiles.tokens_of("C!")


def test_atoms_of_a_written_reaction_keep_their_element_and_neighbours():
    rng = np.random.default_rng(0)
    for _ in range(50):
        text, known = reactions.reaction(rng, slice(None))
        one = mapping.Reaction.of(text)
        assert len(one.tokens) <= reactions.TOKENS
        assert len(set(known)) == len(known) == len(one.product)
        assert one.same[range(len(known)), known].all()
        new_bonds = one.product_bonds & ~one.reactant_bonds[np.ix_(known, known)]
        assert new_bonds.sum() in (0, 2)  # one bond is made, and counted from both atoms


def test_an_atom_is_mapped_to_that_with_the_largest_weight():
    one = mapping.Reaction.of("CO.N>>NC")
    attention = torch.zeros(len(one.tokens), len(one.tokens))
    attention[one.product[0], one.reactants[2]] = 0.2
    attention[one.reactants[0], one.product[1]] = 0.1
    attention[one.product[1], one.reactants[1]] = 0.9  # an oxygen
    pairs, certainty = one.mapped(attention)
    assert pairs.tolist() == [2, 0]
    assert certainty == pytest.approx(1)


def variable(name, array, number):
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    return text(name) + shape + struct.pack("<BI", number, array.nbytes) + array.tobytes()


def text(name):
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def test_a_file_of_ctranslate2_is_read(tmp_path):
    half, small = np.arange(6, dtype=np.float16).reshape(2, 3), np.array(-3, dtype=np.int16)
    path = tmp_path / "model.bin"
    variables = variable("a/weight", half, 4) + variable("b", small, 2)
    path.write_bytes(struct.pack("<I", 6) + text("Spec") + struct.pack("<II", 3, 2) + variables)
    read = whisper_file.read(path)
    assert list(read) == ["a/weight", "b"]
    np.testing.assert_array_equal(read["a/weight"], half)
    assert read["b"].dtype == np.int16
    assert int(read["b"]) == -3
    path.write_bytes(struct.pack("<I", 5))
    with pytest.raises(ValueError, match="in version 6 of its format"):
        whisper_file.read(path)
