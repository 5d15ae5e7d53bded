"""A grammar over tokens, small and strict."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Automaton:
    """`edges[state]` has the tokens that may come next, and the state after each. A forbidden token is a KeyError."""

    vocab_size: int
    edges: Mapping[int, Mapping[int, int]]
    state: int = 0

    def allowed(self) -> npt.NDArray[np.bool_]:
        return np.isin(np.arange(self.vocab_size), list(self.edges[self.state]))

    def forced(self) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        state = self.state
        while len(self.edges[state]) == 1 and len(tokens) < 8:
            [(token, state)] = self.edges[state].items()
            tokens += (token,)
        return tokens

    def after(self, token: int) -> "Automaton":
        return replace(self, state=self.edges[self.state][token])
