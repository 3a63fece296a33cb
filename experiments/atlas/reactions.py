"""RXNMapper (ALBERT, 12 layers of 8 heads) on reactions that are written from parts, so that their mapping is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from mapping import HEAD, LAYER, Reaction
from numpy.typing import NDArray
from smiles import is_atom, tokens_of
from study import Study
from transformers import AlbertConfig, AlbertModel
from wheels import RXNMAPPER, config_of, lines_of, sha256_of, weights_of

TOKENS, BATCH = 96, 16
# What is attached at its first atom, and at its last atom. The held-out reactions have parts that the fit never sees.
FIRST = (
    *(
        "Cc1ccccc1",
        "CCc1ccc(F)cc1",
        "C1CCCCC1",
        "CCN1CCOCC1",
        "c1ccc(C(F)(F)F)cc1",
        "CCCCOC",
        "Cc1cccs1",
        "C(C)C(=O)OC",
    ),
    *("c1ccc2[nH]ccc2c1", "CC1CCN(C(=O)OC(C)(C)C)CC1", "c1cncc(Cl)c1", "CC(C)c1ccc(OC)cc1", "c1ccc(C#N)cc1", "CCC1CC1"),
    *("c1nc2ccccc2s1", "CCOc1ccc(Br)cc1", "c1ccc(N2CCNCC2)cc1", "CC(O)c1ccncc1", "Cc1ccc(S(C)(=O)=O)cc1", "C1CCOCC1"),
)
LAST = (
    *(
        "Cc1ccccc1",
        "COc1ccccc1",
        "CC(C)CC",
        "O=C(OC)c1ccccc1",
        "CCc1ccc(C)cc1",
        "Fc1ccc2ccccc2c1",
        "CCCCCC",
        "N#Cc1ccccc1",
    ),
    *("Clc1cncnc1", "CN(C)c1ccccc1", "CC(C)(C)OC(=O)N1CCCC1", "COCCC", "FC(F)(F)c1cccnc1", "CC1(C)OCCC1", "Cc1ccsc1"),
    *("O=C1CCCN1C", "Brc1ccc(OC)cc1", "CCS(=O)(=O)c1ccccc1", "c1ccc(-c2ccccc2)cc1", "CCOC(=O)CC"),
)
OTHERS = (
    *("CN(C)C=O", "ClCCl", "C1CCOC1", "CCN(CC)CC", "O=C([O-])[O-].[K+].[K+]", "CCO", "O", "CC#N", "[Na+].[OH-]", "Cl"),
    *("CCN=C=NCCCN(C)C", "On1nnc2ccccc21", "c1ccncc1", "CC(C)N(CC)C(C)C", "Cc1ccccc1", "[Na+].[H-]", "C1COCCO1"),
)
# Parts with the same name in a reactant and in the product are the same atoms in the same order; others leave.
Part = tuple[str, str | None]
KINDS: tuple[tuple[tuple[tuple[Part, ...], ...], tuple[Part, ...]], ...] = (
    (((("O=C(", "acid"), ("O)", None), ("{first}", "r")), (("N", "n"), ("{other}", "s"))),
     (("O=C(", "acid"), ("N", "n"), ("{other}", "s"), (")", None), ("{first}", "r"))),
    (((("O=C(", "acid"), ("O)", None), ("{first}", "r")), (("O", "o"), ("{other}", "s"))),
     (("O=C(", "acid"), ("O", "o"), ("{other}", "s"), (")", None), ("{first}", "r"))),
    (((("{last}", "r"), ("Br", None)), (("OB(O)", None), ("{first}", "s"))), (("{last}", "r"), ("{first}", "s"))),
    (((("{last}", "r"), ("Br", None)), (("N", "n"), ("{first}", "s"))),
     (("{last}", "r"), ("N", "n"), ("{first}", "s"))),
    (((("{last}", "r"), ("O", "o")), (("Br", None), ("C", "c"), ("{first}", "s"))),
     (("{last}", "r"), ("O", "o"), ("C", "c"), ("{first}", "s"))),
    (((("{last}", "r"), ("C", "c"), ("=O", None)), (("N", "n"), ("{first}", "s"))),
     (("{last}", "r"), ("C", "c"), ("N", "n"), ("{first}", "s"))),
    (((("{last}", "r"), ("S(=O)(=O)", "t"), ("Cl", None)), (("N", "n"), ("{first}", "s"))),
     (("{last}", "r"), ("S(=O)(=O)", "t"), ("N", "n"), ("{first}", "s"))),
    (((("CC(C)(C)OC(=O)", None), ("N", "n"), ("{first}", "s")),), (("N", "n"), ("{first}", "s"))),
)  # fmt: skip


class Batch(NamedTuple):
    """Reactions as token ids, and the atom mapping of each.

    Attributes
    ----------
    ids, mask : Tensor, shape (reactions, tokens)
    reactions : list of Reaction
    known : list of ndarray
        The reactant atom of each product atom.
    mapped : list of ndarray
        The same as the model with full attention maps them; empty at first.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    reactions: list[Reaction]
    known: list[NDArray[np.intp]]
    mapped: list[NDArray[np.intp]]


def study() -> Study:
    """Load the model, and write reactions: three quarters of the parts for the fit, and the others for the results."""
    model, vocabulary = load()
    rng = np.random.default_rng(0)
    parts = {"fitted": slice(None, 15), "held_out": slice(15, None)}
    batches = {
        name: [batch_of([reaction(rng, part) for _ in range(BATCH)], vocabulary) for _ in range(count)]
        for (name, part), count in zip(parts.items(), (24, 8), strict=True)
    }
    for batch in (*batches["fitted"], *batches["held_out"]):
        batch.mapped.extend(mapped(model, batch))
    return Study(
        *(model, loss, agreement, batches["fitted"], batches["held_out"]),
        tokens=TOKENS,
        ramp=4,
        sha256=sha256_of(RXNMAPPER),
    )


def load() -> tuple[AlbertModel, dict[str, int]]:
    """Return the model, whose layers share their weights but have attentions of their own, and the vocabulary."""
    config = AlbertConfig(**config_of(RXNMAPPER["config.json"]) | {"num_hidden_groups": 12})
    config._attn_implementation = "headspan"
    model = AlbertModel(config, add_pooling_layer=False).eval()
    shared = "encoder.albert_layer_groups.0."
    for name, weight in weights_of(RXNMAPPER["pytorch_model.bin"]).items():
        inner = name.removeprefix("albert.")
        copies = range(12) if inner.startswith(shared) else (0,)
        for group in copies if inner in model.state_dict() else ():
            model.get_parameter(inner.replace(shared, shared.replace("0", str(group)))).data.copy_(weight)
    return model, {token: number for number, token in enumerate(lines_of(RXNMAPPER["vocab.txt"]))}


def reaction(rng: np.random.Generator, parts: slice) -> tuple[str, list[int]]:
    """Return a reaction of at most TOKENS tokens, and the reactant atom of each product atom."""
    while True:
        reactants, product = KINDS[rng.integers(len(KINDS))]
        drawn = {"first": rng.choice(FIRST[parts]), "last": rng.choice(LAST[parts]), "other": rng.choice(FIRST[parts])}
        molecules: list[tuple[Part, ...]] = [*reactants]
        molecules += [((str(other), None),) for other in rng.choice(OTHERS, rng.integers(1, 4), replace=False)]
        molecules = [molecules[place] for place in rng.permutation(len(molecules))]
        text, known = _written(molecules, product, drawn)
        if len(tokens_of(text)) + 2 <= TOKENS:
            return text, known


def _written(
    molecules: list[tuple[Part, ...]], product: tuple[Part, ...], drawn: dict[str, str]
) -> tuple[str, list[int]]:
    places: dict[str, list[int]] = {}
    count = 0
    for part, name in (part for molecule in molecules for part in molecule):
        atoms = sum(map(is_atom, tokens_of(part.format(**drawn))))
        if name is not None:
            places[name] = list(range(count, count + atoms))
        count += atoms
    before = ".".join("".join(part for part, _ in molecule) for molecule in molecules)
    text = f"{before}>>{''.join(part for part, _ in product)}".format(**drawn)
    return text, [place for _, name in product if name is not None for place in places[name]]


def batch_of(reactions: list[tuple[str, list[int]]], vocabulary: dict[str, int]) -> Batch:
    """Return reactions with their mapping as a batch, with padding behind the short ones."""
    read = [Reaction.of(text) for text, _ in reactions]
    ids = torch.full((len(read), max(len(one.tokens) for one in read)), vocabulary["[PAD]"])
    for row, one in zip(ids, read, strict=True):
        row[: len(one.tokens)] = torch.tensor([vocabulary.get(token, vocabulary["[UNK]"]) for token in one.tokens])
    return Batch(ids, ids != vocabulary["[PAD]"], read, [np.array(known) for _, known in reactions], [])


def attention_of(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the weights of the head that maps atoms, (reactions, tokens, tokens); no other layer computes any."""
    layer = model.encoder.albert_layer_groups[LAYER].albert_layers[0].attention
    weights: list[torch.Tensor] = []
    hooks = (
        layer.register_forward_pre_hook(lambda _, x, more: (x, more | {"output_attentions": True}), with_kwargs=True),
        layer.register_forward_hook(lambda _, x, out: weights.append(out[1][:, HEAD])),
    )
    try:
        model(ids, attention_mask=mask.long())
    finally:
        for hook in hooks:
            hook.remove()
    return weights[0]


def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean negative logarithm of the weight of the pairs that the model maps with full attention."""
    attention = attention_of(model, batch.ids, batch.mask)
    shares = []
    for reaction_, pairs, weights in zip(batch.reactions, batch.mapped, attention, strict=True):
        atoms = np.flatnonzero(pairs >= 0)
        shares.append(reaction_.weights(weights)[atoms, pairs[atoms]])
    return -torch.cat(shares).clamp_min(1e-9).log().mean()


@torch.no_grad()
def mapped(model: torch.nn.Module, batch: Batch) -> list[NDArray[np.intp]]:
    """Return the atom mapping that the model gives each reaction."""
    attention = attention_of(model, batch.ids, batch.mask)
    return [one.mapped(weights)[0] for one, weights in zip(batch.reactions, attention, strict=True)]


def agreement(model: torch.nn.Module, batches: Sequence[Any]) -> float:
    """Return the share of product atoms that are mapped to the atom that they are."""
    right = [
        pairs == known for batch in batches for pairs, known in zip(mapped(model, batch), batch.known, strict=True)
    ]
    return float(np.concatenate(right).mean())
