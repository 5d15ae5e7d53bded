"""Teaches a block to foresee its target, step by step, from a seed alone.

Knows blocks, batches and the optimizer; knows no folder, and no clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.optimizers import clip_grad_norm
from mlx.utils import tree_flatten, tree_unflatten

from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.training.chain import chained_states
from mtplx.engine.training.examples import Examples, examples
from mtplx.engine.training.loss import probabilities, soft_cross_entropy
from mtplx.engine.training.optimizer import BlockOptimizer
from mtplx.engine.training.pieces import Piece, batches
from mtplx.engine.training.schedule import learning_rate
from mtplx.engine.training.states import States
from mtplx.engine.training.texts import Text

_MOST_GRADIENT = 1.0  # its norm, over all parameters
_MOST_WARM_UP = 50  # steps, or a tenth of all

Embed = Callable[[mx.array], mx.array]  # tokens [..] to [.., D]


@dataclass(frozen=True)
class TrainingPlan:
    """`num_chained` steps in a chain, each of which counts `chained_weight` times the one before; `batch_pairs` pairs
    in a batch, and `epochs` times through all of them."""

    num_chained: int = 2
    chained_weight: float = 0.8
    batch_pairs: int = 2048
    epochs: int = 1
    highest_rate: float = 0.02
    seed: int = 0


@dataclass(frozen=True)
class StepReport:
    """`losses` are means by step of the chain; `num_pairs` those that the batch held."""

    losses: tuple[float, ...]
    num_pairs: int


class Trainer:
    """A training under way: `step` steps of `num_steps` are done. `weight` [N, D] is the frozen output head's."""

    def __init__(
        self,
        block: MtpBlock,
        embed: Embed,
        weight: mx.array,
        pieces: Sequence[Piece],
        texts: Sequence[Text],
        states: States,
        plan: TrainingPlan,
    ) -> None:
        self.block = block
        self.step = 0
        self.num_steps = sum(len(self._epoch(pieces, plan, epoch)) for epoch in range(plan.epochs))
        self._plan = plan
        self._embed = embed
        self._weight = weight
        self._pieces = pieces
        self._texts = texts
        self._states = states
        self._optimizer = BlockOptimizer()
        self._module: nn.Module = block
        self._optimizer.init(self._module.trainable_parameters())  # type: ignore[no-untyped-call]
        self._slope_and_gradient = nn.value_and_grad(block, self._slope)

    @staticmethod
    def _epoch(pieces: Sequence[Piece], plan: TrainingPlan, epoch: int) -> list[list[Piece]]:
        return batches(pieces, plan.batch_pairs, seed=plan.seed, epoch=epoch)

    def run(self) -> Iterator[StepReport]:
        """The steps that are left. `num_steps` may be lowered meanwhile."""
        for batch in islice(self._batches(), self.step, None):
            if self.step >= self.num_steps:
                return
            yield self._take_step(batch)

    def _batches(self) -> Iterator[list[Piece]]:
        for epoch in range(self._plan.epochs):
            yield from self._epoch(self._pieces, self._plan, epoch)

    def _take_step(self, batch: Sequence[Piece]) -> StepReport:
        shown = examples(batch, self._texts, self._states, self._plan.num_chained)
        (_, losses), gradient = self._slope_and_gradient(shown)
        gradient, _ = clip_grad_norm(gradient, _MOST_GRADIENT)
        num_warm_up = max(1, min(_MOST_WARM_UP, self.num_steps // 10))
        self._optimizer.set_rate(
            learning_rate(self.step, self.num_steps, highest=self._plan.highest_rate, num_warm_up=num_warm_up)
        )
        self._optimizer.update(self.block, gradient)
        mx.eval(self._module.parameters(), self._optimizer.state, losses)
        self.step += 1
        return StepReport(tuple(losses.tolist()), sum(piece.num_pairs for piece in batch))

    def _slope(self, shown: Examples) -> tuple[mx.array, mx.array]:
        """A number whose gradient is that of the weighted loss, and the mean losses by step of the chain."""
        target = probabilities(shown.target_hidden, self._weight)
        embeddings = [self._embed(tokens) for tokens in shown.tokens]
        slope, losses = mx.array(0.0), []
        for step, states in enumerate(chained_states(self.block, shown.hidden, embeddings)):
            rows = states.reshape(-1, states.shape[-1])[shown.wanted[step]]
            if not rows.shape[0]:
                losses.append(mx.array(0.0))
                continue
            loss, own_slope = soft_cross_entropy(rows, self._weight, target, shown.truth[step])
            slope += own_slope * (self._plan.chained_weight**step / rows.shape[0])
            losses.append(loss / rows.shape[0])
        return slope, mx.stack(losses)

    # ---- where a training stands --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, mx.array]:
        """All that a training needs to go on as if nothing had been, but for `step` and `num_steps`."""
        return dict(tree_flatten({"block": self._module.parameters(), "optimizer": self._optimizer.state}))

    def restore(self, arrays: dict[str, mx.array], step: int, num_steps: int) -> None:
        """Go on from there."""
        held: Any = tree_unflatten(list(arrays.items()))
        self.block.update(held["block"])
        self._optimizer.state = held["optimizer"]
        self.step, self.num_steps = step, num_steps
