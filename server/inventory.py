"""What this machine has to decode with: models, the default one and those in the hub's cache, and kernels.

Knows where models lie, loads none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mtplx.configs.settings import Settings
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models import default_model
from mtplx.kernels.report import KernelReport


@dataclass(frozen=True)
class InstalledModel:
    """A model as `--model` names it; `origin` tells how it came here, `place` where it lies."""

    name: str
    num_bytes: int
    origin: str
    place: str


def installed_models() -> Iterator[InstalledModel]:
    """The default model first, if it is installed."""
    try:
        path = default_model.default_model_path()
    except ModelLoadError:
        pass
    else:
        package = f"default model, from the package {default_model.PACKAGE}"
        yield InstalledModel(default_model.DEFAULT_MODEL_ID, path.stat().st_size, package, str(path))
    yield from _from_hub()


def kernels(settings: Settings) -> KernelReport:
    """The kernels that a server with these settings would use."""
    from mtplx.kernels.preparing import kernels_here

    return kernels_here(use_native=settings.native_kernels, threads=settings.threads, inputs=settings.activations)


def _from_hub() -> Iterator[InstalledModel]:
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir  # takes a while, as only this command may

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        if repository.repo_type == "model":
            yield InstalledModel(
                repository.repo_id, repository.size_on_disk, "Hugging Face hub", str(repository.repo_path)
            )
