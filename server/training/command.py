"""`mtplx train-head` from options to a head. Knows the terminal; training is the engine's affair."""

import shlex
import sys
from importlib.metadata import version

import mtplx
from mtplx.engine.errors import EngineError
from mtplx.engine.models.loading import load_model
from mtplx.engine.training.data import read_data
from mtplx.engine.training.head_training import describe, train_head
from mtplx.engine.training.recipe import Recipe
from mtplx.engine.training.trainer import TrainingPlan
from mtplx.kernels.preparing import prepare_kernels, speed_up
from mtplx.server.training.options import TrainingOptions
from mtplx.server.training.progress import TrainingProgress


def train(options: TrainingOptions, *, model: str | None, threads: int | None, native_kernels: bool) -> None:
    """Train, and say how good the head is. Ctrl-C says how to go on. Raises EngineError."""
    recipe = _recipe(options)
    if recipe.data is not None:
        read_data(recipe.data)  # now: what is wrong with it would be a pity to hear later
    try:
        recipe.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineError(f"{recipe.work} cannot be made: {error.strerror or error}; name another folder") from None
    kernels = prepare_kernels(use_native=native_kernels, threads=threads)
    loaded = load_model(model)
    speed_up(loaded.model, kernels)
    provenance = {
        "command": shlex.join(["mtplx", *sys.argv[1:]]),
        "model": loaded.id,
        "versions": {"mtplx": mtplx.__version__, "mlx": version("mlx"), "mlx-lm": version("mlx-lm")},
    }
    try:
        with TrainingProgress() as progress:
            measured = train_head(loaded, recipe, provenance, progress)
    except KeyboardInterrupt:
        print(f"\nmtplx: interrupted; run the same command again to go on from {recipe.work}", file=sys.stderr)
        raise
    print(f"{recipe.out}: {describe(measured)}")
    print(f"{recipe.work} is no longer needed")


def _recipe(options: TrainingOptions) -> Recipe:
    plan = TrainingPlan(
        num_chained=options.chained_steps,
        batch_pairs=options.batch_tokens,
        epochs=options.epochs,
        highest_rate=options.learning_rate,
        seed=options.seed,
    )
    return Recipe(
        out=options.out,
        data=options.data,
        num_tokens=options.tokens,
        answer_tokens=options.answer_tokens,
        disk_bytes=int(options.disk_gb * 1e9),
        vocabulary_size=options.vocabulary_size,
        minutes=options.minutes,
        bits=None if options.bits == 32 else options.bits,
        plan=plan,
    )
