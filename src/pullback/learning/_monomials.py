"""All monomials of D inputs up to a degree, and their derivatives without a division.

Term p is φ_p(u) = Π_d u_d^e_pd with exponents e_p, |e_p| ≤ degree. Its derivative lowers one
exponent,

    ∂φ_p/∂u_j = e_pj φ_q,   e_q = e_p - (one in place j),

and q is a term of the same basis. So a derivative of the basis is a choice of its own columns, and
is right at u_j = 0, where e_pj φ_p / u_j is not.
"""

from functools import cached_property
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def term_count(inputs: int, degree: int) -> int:
    """P, the number of monomials of `inputs` variables up to `degree`.

    >>> term_count(3, 5)
    56
    """
    return comb(inputs + degree, degree)


class Monomials:
    """The basis: term 0 is the constant, then degree by degree.

    >>> Monomials(2, 2).exponents.tolist()
    [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    >>> Monomials(2, 2).values(np.array([[2.0, 3.0]])).tolist()
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """

    def __init__(self, inputs: int, degree: int) -> None:
        """Enumerate the terms of `inputs` variables up to `degree`."""
        self.inputs, self.degree = inputs, degree

    @cached_property
    def exponents(self) -> Array:
        """The exponents e_p, [P, D]."""
        terms = [
            np.bincount(np.array(term, dtype=int), minlength=self.inputs)
            for order in range(self.degree + 1)
            for term in combinations_with_replacement(range(self.inputs), order)
        ]
        return np.stack(terms)

    @cached_property
    def lowered(self) -> Array:
        """The term q with one exponent less in input j, [D, P]; 0 where e_pj = 0."""
        place = {term.tobytes(): p for p, term in enumerate(self.exponents)}
        lowered = np.zeros((self.inputs, len(self.exponents)), dtype=int)
        for j, one in enumerate(np.eye(self.inputs, dtype=int)):
            for p in np.flatnonzero(self.exponents[:, j]):
                lowered[j, p] = place[(self.exponents[p] - one).tobytes()]
        return lowered

    def values(self, u: Array) -> Array:
        """φ(u) [N, P] at u [N, D]: each term is an earlier one times one input."""
        phi = np.empty((len(u), len(self.exponents)), order="F")
        phi[:, 0] = 1.0
        first = np.argmax(self.exponents > 0, axis=1)
        for p in range(1, len(self.exponents)):
            np.multiply(phi[:, self.lowered[first[p], p]], u[:, first[p]], out=phi[:, p])
        return phi

    def derivative(self, phi: Array, j: int) -> Array:
        """∂φ/∂u_j [N, P] from φ [N, P]."""
        return phi[:, self.lowered[j]] * self.exponents[:, j]

    def derivative_coefficients(self, beta: Array) -> Array:
        """Coefficients [P, K, D] of the derivatives of φ·β, for β [P, K].

        >>> beta = np.array([[0.0], [0.0], [5.0]])  # 5 u²
        >>> Monomials(1, 2).derivative_coefficients(beta)[:, 0, 0].tolist()
        [0.0, 10.0, 0.0]
        """
        gamma = np.zeros((*beta.shape, self.inputs))
        for j in range(self.inputs):
            np.add.at(gamma[..., j], self.lowered[j], self.exponents[:, j, None] * beta)
        return gamma
