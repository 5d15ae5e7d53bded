"""Everything that serving takes from one GGUF file: model, tokenizer and context length."""

from pathlib import Path

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf import build_model, check_supported
from mtplx.engine.models.gguf_header import read_header
from mtplx.engine.models.gguf_vocabulary import read_vocabulary
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.precision import describe_precision
from mtplx.engine.text.gguf_tokenizer import GgufTokenizer


def load_gguf(path: Path, *, model_id: str) -> LoadedModel:
    """Load the file at `path`. Raises ModelLoadError when it is missing, damaged, or holds what isn't supported."""
    header = read_header(path)
    check_supported(header)
    vocabulary = read_vocabulary(header)
    model = build_model(header)
    if len(vocabulary.tokens) > model.args.vocab_size:
        raise ModelLoadError(
            f"{path} has {len(vocabulary.tokens)} tokens but embeds only {model.args.vocab_size}; convert it again"
        )
    return LoadedModel(
        id=model_id,
        source=str(path),
        architecture=model.args.model_type,
        quantization=describe_precision(model),
        context_length=model.args.max_position_embeddings,
        vocab_size=model.args.vocab_size,
        model=model,
        tokenizer=GgufTokenizer(vocabulary),
    )
