"""Models by name: the default one, a GGUF file, a folder, or one from the hub. Knows only where to look."""

from pathlib import Path

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.default_model import DEFAULT_MODEL_ID, default_model_path
from mtplx.engine.models.loaded import LoadedModel


def load_model(spec: str | None, *, progress: bool = True) -> LoadedModel:
    """Load the model that `spec` names.

    None is the default model, a name that ends in .gguf a file, an existing folder an mlx-lm model, and anything else
    a hub id "owner/name", downloaded with a bar on the terminal if `progress`. Raises ModelLoadError, whose message
    says what is wrong and what to do.
    """
    # Each way imports its own libraries: those for folders and the hub take seconds.
    if spec is None:
        from mtplx.engine.models.gguf_model import load_gguf

        return load_gguf(default_model_path(), model_id=DEFAULT_MODEL_ID)
    path = Path(spec).expanduser()
    if path.suffix == ".gguf":
        from mtplx.engine.models.gguf_model import load_gguf

        return load_gguf(path, model_id=path.stem)
    from mtplx.engine.models.folder import load_folder

    if path.is_dir():
        return load_folder(path, model_id=path.resolve().name)
    if path.exists():
        raise ModelLoadError(f"{path} is neither a GGUF file nor a folder; name a .gguf file, a folder or a hub id")
    from mtplx.engine.models.hub import download

    return load_folder(download(spec, progress=progress), model_id=spec)
