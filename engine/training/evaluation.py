"""How often a block foresees its target, on texts that it has not learnt from.

Teacher-forced: each step of a chain is told the token that really came. Knows blocks and held-out texts; trains none.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.training.chain import chained_states
from mtplx.engine.training.examples import Examples, examples
from mtplx.engine.training.pieces import Piece, batches
from mtplx.engine.training.states import States
from mtplx.engine.training.texts import Text
from mtplx.engine.training.vocabulary import TokenIds
from mtplx.kernels.training import dense

_CHUNK_ROWS = 128
_BATCH_PAIRS = 2048


@dataclass(frozen=True)
class Measured:
    """Shares of the places looked at, by step of the chain, the first one first.

    `agreement`: the block's likeliest token is the target's. `survival`: so it was at every step up to this one.
    `expected`: the mean of Σ min(p, q), the chance that a sampled draft is accepted at temperature 1 (Leviathan et al.,
    2211.17192).
    """

    agreement: tuple[float, ...]
    survival: tuple[float, ...]
    expected: tuple[float, ...]
    num_places: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class HeldOut:
    """Texts to measure blocks on. What the target makes of them is computed once.

    `weight` [N, D] is the output head's for `token_ids`, `project` the whole head's product [R, D] to [R, V].
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        texts: Sequence[Text],
        states: States,
        *,
        num_steps: int,
        weight: mx.array,
        token_ids: TokenIds | None,
        project: Callable[[mx.array], mx.array],
    ) -> None:
        self._num_steps = num_steps
        self._weight = weight
        self._token_ids = None if token_ids is None else mx.array(token_ids)
        self._batches = [
            (shown, *_target(shown, project))
            for batch in batches(pieces, _BATCH_PAIRS, seed=0, epoch=0)
            for shown in [examples(batch, texts, states, num_steps)]
        ]

    def measure(self, block: MtpBlock, embed: Callable[[mx.array], mx.array]) -> Measured:
        counts = np.zeros((4, self._num_steps))  # agreements, survivals, chances, places
        survivable = np.zeros(self._num_steps)
        for shown, log_sums, greedy in self._batches:
            embeddings = [embed(tokens) for tokens in shown.tokens]
            alive = np.ones(shown.hidden.shape[0] * shown.hidden.shape[1], dtype=np.bool_)
            begun = _mask(alive.size, shown.wanted[0])
            for step, states in enumerate(chained_states(block, shown.hidden, embeddings)):
                rows = states.reshape(-1, states.shape[-1])[shown.wanted[step]]
                agrees, chances = self._compare(rows, shown.target_hidden, shown.truth[step], log_sums, greedy)
                agreed = np.zeros(alive.size, dtype=np.bool_)
                agreed[np.asarray(shown.wanted[step])] = agrees
                alive &= agreed
                counts[:, step] += agrees.sum(), (alive & begun).sum(), chances, len(agrees)
                survivable[step] += (begun & _mask(alive.size, shown.wanted[step])).sum()
        agreement, survival, expected = counts[:3] / np.maximum(1, [counts[3], survivable, counts[3]])
        return Measured(
            tuple(agreement.tolist()), tuple(survival.tolist()), tuple(expected.tolist()), int(counts[3, 0])
        )

    def _compare(
        self, rows: mx.array, target: mx.array, truth: mx.array, log_sums: mx.array, greedy: mx.array
    ) -> tuple[npt.NDArray[np.bool_], float]:
        """Which of the rows [R, D] have the target's likeliest token, and the sum of their Σ min(p, q)."""
        agrees, chances = [np.zeros(0, dtype=np.bool_)], 0.0
        for start in range(0, rows.shape[0], _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            own, true = dense(rows[chunk], self._weight), truth[chunk]
            best = mx.argmax(own, axis=-1)
            best = best if self._token_ids is None else self._token_ids[best]
            p = mx.exp(dense(target[true], self._weight) - log_sums[true])
            chance = mx.sum(mx.minimum(p, mx.softmax(own, axis=-1)))
            agrees.append(np.asarray(best == greedy[true]))
            chances += float(chance)
        return np.concatenate(agrees), chances


def _target(shown: Examples, project: Callable[[mx.array], mx.array]) -> tuple[mx.array, mx.array]:
    """Of the target's rows [U], over the whole vocabulary: log Σ exp [U, 1] and the likeliest token [U]."""
    log_sums, greedy = [], []
    for start in range(0, shown.target_hidden.shape[0], _CHUNK_ROWS):
        logits = project(shown.target_hidden[start : start + _CHUNK_ROWS]).astype(mx.float32)
        log_sums.append(mx.logsumexp(logits, axis=-1, keepdims=True))
        greedy.append(mx.argmax(logits, axis=-1))
        mx.eval(log_sums[-1], greedy[-1])
    return mx.concatenate(log_sums), mx.concatenate(greedy)


def _mask(size: int, indices: mx.array) -> npt.NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[np.asarray(indices)] = True
    return mask
