"""From a model to a head in a folder: texts and hidden states, vocabulary, training, measuring.

Each stage goes on where an earlier run of the same recipe was interrupted.

Knows the order of things and the folder; each stage is done elsewhere.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.engine.models.fresh_block import NoBlockError, block_like
from mtplx.engine.models.head_folder import Quantization, head_target, load_head, save_head
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.mtp import DraftHead, MtpBlock, draft_head
from mtplx.engine.models.parts import head_of, head_rows, hidden_size, num_embeddings, plain_weights
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Target
from mtplx.engine.training.beginning import fit_projection
from mtplx.engine.training.chain import with_dense_products
from mtplx.engine.training.checkpoint import Checkpoint, check_same, load_checkpoint, save_checkpoint
from mtplx.engine.training.corpus import CorpusPlan, CorpusWriter
from mtplx.engine.training.data import read_data
from mtplx.engine.training.evaluation import HeldOut, Measured
from mtplx.engine.training.jobs import data_jobs, own_jobs
from mtplx.engine.training.pieces import Piece, cut
from mtplx.engine.training.recipe import Recipe, remember
from mtplx.engine.training.states import StateFile, States
from mtplx.engine.training.texts import Text, TextFile
from mtplx.engine.training.trainer import StepReport, Trainer
from mtplx.engine.training.vocabulary import TokenIds, coverage, frequent_tokens

_HELD_OUT_EVERY = 19  # of so many texts one is not learnt from; odd, as every other answer is a greedy one
_MOST_HELD_OUT = 64  # texts that are measured on
_MOST_PIECE_PAIRS = 512
_GROUP_SIZE = 32
_CHECKPOINT_S = 60.0
_MEASURE_S = 300.0
_TIMED_STEPS = 8  # tell how many fit into the minutes given


class Listener(Protocol):
    """Is told how it goes."""

    def begin(self, stage: str, total: int, done: int = 0) -> None: ...

    def advance(self, amount: int, note: str = "") -> None: ...

    def tell(self, line: str) -> None: ...


@dataclass(frozen=True)
class Corpus:
    """All texts, by number, and the pieces of those that are learnt from and of the others."""

    texts: Sequence[Text]
    states: States
    learnt: Sequence[Piece]
    held_out: Sequence[Piece]

    def of(self, pieces: Sequence[Piece]) -> list[Text]:
        return [self.texts[number] for number in sorted({piece.text for piece in pieces})]


def train_head(loaded: LoadedModel, recipe: Recipe, provenance: Mapping[str, Any], listener: Listener) -> Measured:
    """Write the head's folder; what was measured of the head as it lies there.

    Raises InvalidRequestError for a recipe that does not fit the model or what `recipe.work` holds, EngineError where
    texts or training come to nothing.
    """
    target = make_target(loaded.model, half_rows=True)  # as it is served
    if target.way != "rows":
        raise InvalidRequestError(f"{loaded.id} runs one sequence at a time; a head is trained for models run by rows")
    try:
        block = with_dense_products(block_like(loaded.model))
    except NoBlockError as reason:
        raise InvalidRequestError(f"there is no block like the layers of {loaded.id}: {reason}") from reason
    corpus = _corpus(loaded, target, recipe, block.window, listener)
    token_ids = _vocabulary(loaded, recipe, corpus, listener)
    head = draft_head(loaded.model, block, token_ids)
    held_out = _held_out(loaded, recipe, corpus, token_ids)
    _train(loaded, recipe, corpus, head, held_out, listener)
    return _save(loaded, recipe, corpus, head, held_out, provenance)


def _corpus(loaded: LoadedModel, target: Target, recipe: Recipe, window: int | None, listener: Listener) -> Corpus:
    settings = recipe.text_settings(head_target(loaded).fingerprint)
    check_same(recipe.work, remember(recipe.work / "settings.json", settings), settings)
    jobs = own_jobs(loaded) if recipe.data is None else data_jobs(loaded, read_data(recipe.data))
    texts = TextFile(recipe.work / "texts.jsonl")
    states = StateFile(recipe.work / "states.f16", texts.texts, hidden_size(loaded.model), recipe.disk_bytes)
    listener.begin("texts", recipe.num_tokens, texts.num_tokens)
    plan = CorpusPlan(recipe.num_tokens, recipe.answer_tokens, recipe.plan.seed)
    writer = CorpusWriter(loaded, target, plan, texts, states, lambda text: listener.advance(len(text.tokens)))
    writer.write(jobs)
    enough = _as_many(texts.texts, recipe.num_tokens)
    if states.num_texts < len(enough):
        num_left = len(enough) - states.num_texts
        listener.tell(f"the disk budget is full: hidden states of {num_left} texts are computed anew each time")
    num_left_out = sum(not text.tokens for text in enough)
    if num_left_out:
        listener.tell(f"{num_left_out} of {len(enough)} texts are left out: too short, too long, or like one before")
    pieces = cut(enough, min(_MOST_PIECE_PAIRS, window or _MOST_PIECE_PAIRS))
    held_out = [piece for piece in pieces if _is_held_out(piece.text)]
    learnt = [piece for piece in pieces if piece.text % _HELD_OUT_EVERY != _HELD_OUT_EVERY - 1]
    if not learnt or not held_out:
        raise EngineError(f"{len(enough)} texts are too few to learn from; ask for more tokens, or give more data")
    return Corpus(enough, States(states, target, enough), learnt, held_out)


def _as_many(texts: Sequence[Text], num_tokens: int) -> Sequence[Text]:
    """The first texts that have that many tokens together, though an earlier run may have written more."""
    ends = np.cumsum([len(text.tokens) for text in texts])
    return texts[: int(np.searchsorted(ends, num_tokens)) + 1]


def _is_held_out(number: int) -> bool:
    place, rest = divmod(number, _HELD_OUT_EVERY)
    return rest == _HELD_OUT_EVERY - 1 and place < _MOST_HELD_OUT


def _vocabulary(loaded: LoadedModel, recipe: Recipe, corpus: Corpus, listener: Listener) -> TokenIds | None:
    if recipe.vocabulary_size is None:
        return None
    token_ids = frequent_tokens(corpus.of(corpus.learnt), recipe.vocabulary_size, loaded.vocab_size)
    share = coverage(token_ids, corpus.of(corpus.held_out), loaded.vocab_size)
    listener.tell(f"{recipe.vocabulary_size} tokens are {share:.1%} of held-out text")
    return token_ids


def _weight(loaded: LoadedModel, token_ids: TokenIds | None) -> mx.array:
    wanted = np.arange(num_embeddings(loaded.model), dtype=np.int32) if token_ids is None else token_ids
    return head_rows(loaded.model, wanted).astype(mx.float32)


def _held_out(loaded: LoadedModel, recipe: Recipe, corpus: Corpus, token_ids: TokenIds | None) -> HeldOut:
    return HeldOut(
        corpus.held_out,
        corpus.texts,
        corpus.states,
        num_steps=recipe.plan.num_chained,
        weight=_weight(loaded, token_ids),
        token_ids=token_ids,
        project=head_of(loaded.model),
    )


def _train(
    loaded: LoadedModel, recipe: Recipe, corpus: Corpus, head: DraftHead, held_out: HeldOut, listener: Listener
) -> None:
    """Train the head's block, from the last checkpoint if there is one."""
    weight = _weight(loaded, head.token_ids)
    trainer = Trainer(head.block, head.embed, weight, corpus.learnt, corpus.texts, corpus.states, recipe.plan)
    path = recipe.work / "checkpoint.safetensors"
    settings = {**asdict(recipe.plan), "vocabulary_size": recipe.vocabulary_size, "num_texts": len(corpus.texts)}
    if checkpoint := load_checkpoint(path, settings):
        trainer.restore(dict(checkpoint.arrays), checkpoint.step, checkpoint.num_steps)
    else:
        fit_projection(head.block, head.embed, corpus.learnt, corpus.texts, corpus.states)

    def save() -> None:
        save_checkpoint(path, Checkpoint(settings, trainer.step, trainer.num_steps, trainer.arrays()))

    listener.begin("training", trainer.num_steps, trainer.step)
    begun_at_s, first_step = time.monotonic(), trainer.step
    saved_at_s = measured_at_s = begun_at_s
    for report in trainer.run():
        now_s = time.monotonic()
        if trainer.step == _TIMED_STEPS and recipe.minutes is not None:
            step_s = (now_s - begun_at_s) / (trainer.step - first_step)
            trainer.num_steps = min(trainer.num_steps, max(_TIMED_STEPS, round(60 * recipe.minutes / step_s)))
            listener.begin("training", trainer.num_steps, trainer.step)
        listener.advance(1, _of_losses(report))
        if not all(map(math.isfinite, report.losses)):
            raise EngineError(f"the loss is no number any more at step {trainer.step}; try a lower learning rate")
        if now_s - saved_at_s > _CHECKPOINT_S:
            save()
            saved_at_s = now_s
        if now_s - measured_at_s > _MEASURE_S:
            listener.tell(f"step {trainer.step}: {describe(held_out.measure(head.block, head.embed))}")
            measured_at_s = time.monotonic()
    save()


def _save(
    loaded: LoadedModel,
    recipe: Recipe,
    corpus: Corpus,
    head: DraftHead,
    held_out: HeldOut,
    provenance: Mapping[str, Any],
) -> Measured:
    """Write the head, with what is measured of its weights as they are rounded on disk."""
    quantization = None if recipe.bits is None else Quantization(recipe.bits, _GROUP_SIZE)
    made = {
        **provenance,
        "seed": recipe.plan.seed,
        "num_texts": len(corpus.texts),
        "num_tokens": sum(len(text.tokens) for text in corpus.texts),
        "training": asdict(recipe.plan),
    }
    trained = plain_weights(head.block)
    save_head(recipe.work / "head", head, loaded, quantization=quantization, acceptance={}, provenance=made)
    _load(head.block, plain_weights(load_head(recipe.work / "head", loaded).block))
    measured = held_out.measure(head.block, head.embed)
    _load(head.block, trained)
    save_head(recipe.out, head, loaded, quantization=quantization, acceptance=measured.as_dict(), provenance=made)
    return measured


def _load(block: MtpBlock, weights: Mapping[str, mx.array]) -> None:
    block.load_weights(list(weights.items()))


def describe(measured: Measured) -> str:
    """In a line for a person."""

    def shares(values: Sequence[float]) -> str:
        return " / ".join(f"{value:.2f}" for value in values)

    return (
        f"foresees the likeliest token {shares(measured.agreement)}, none missed before {shares(measured.survival)}; "
        f"chance at temperature 1 {shares(measured.expected)}"
    )


def _of_losses(report: StepReport) -> str:
    return "loss " + " / ".join(f"{loss:.2f}" for loss in report.losses)
