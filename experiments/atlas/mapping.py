"""The atom mapping of RXNMapper: which atom of the reactants each atom of the product was, read off one head.

Schwaller et al., "Extraction of organic chemistry grammar from unsupervised learning of chemical reactions", 2021. The
head is number 5 of layer 10, counted from 0. The weight between a product atom and a reactant atom is the sum of both
directions. Atoms are mapped one by one, the surest first; then the neighbours of both atoms are 90 times as likely to
be a pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from smiles import ARROW, bonds_of, element_of, is_atom, tokens_of

LAYER, HEAD = 10, 5
_NEIGHBOURS = 90.0


class Reaction(NamedTuple):
    """The tokens of a reaction, the places of its atoms, and what atoms may be pairs.

    Attributes
    ----------
    tokens : list of str
        With "[CLS]" before and "[SEP]" behind.
    reactants, product : ndarray
        The places of the atoms among the tokens.
    same : ndarray, shape (product atoms, reactant atoms)
        Whether the element is the same.
    reactant_bonds, product_bonds : ndarray
    """

    tokens: list[str]
    reactants: NDArray[np.intp]
    product: NDArray[np.intp]
    same: NDArray[np.bool_]
    reactant_bonds: NDArray[np.bool_]
    product_bonds: NDArray[np.bool_]

    @classmethod
    def of(cls, smiles: str) -> Reaction:
        """Read a reaction: the reactants, ">>" and the product."""
        tokens = tokens_of(smiles)
        places = [place for place, token in enumerate(tokens, 1) if is_atom(token)]
        arrow = tokens.index(ARROW)
        elements = [element_of(token) for token in tokens if is_atom(token)]
        count = sum(is_atom(token) for token in tokens[:arrow])
        bonds = bonds_of(tokens)
        return cls(
            ["[CLS]", *tokens, "[SEP]"],
            np.array(places[:count]),
            np.array(places[count:]),
            np.array(elements[count:])[:, None] == np.array(elements[:count]),
            bonds[:count, :count],
            bonds[count:, count:],
        )

    def weights(self, attention: torch.Tensor) -> torch.Tensor:
        """Return the share of each reactant atom for each product atom, given the weights of the head."""
        both = attention[self.product][:, self.reactants] + attention[self.reactants][:, self.product].T
        both = both * torch.from_numpy(self.same)
        return both / both.sum(dim=1, keepdim=True).clamp_min(1e-30)

    def mapped(self, attention: torch.Tensor) -> tuple[NDArray[np.intp], float]:
        """Return the reactant atom of each product atom, or -1, and the product of the certainties."""
        weights = self.weights(attention).double().numpy()
        factors = np.ones_like(weights)
        pairs, certainty = np.full(len(weights), -1), 1.0
        for _ in pairs:
            scores = weights * factors
            sums = scores.sum(axis=1, keepdims=True)
            scores = np.divide(scores, sums, out=np.zeros_like(scores), where=sums != 0)
            atom, other = np.unravel_index(scores.argmax(), scores.shape)
            if np.isclose(scores[atom, other], 0):
                break
            pairs[atom] = other
            certainty *= scores[atom, other]
            factors[np.ix_(self.product_bonds[atom], self.reactant_bonds[other])] *= _NEIGHBOURS
            factors[atom], factors[:, other] = 0, 0
        return pairs, float(certainty)
