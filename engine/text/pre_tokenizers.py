"""How a text is cut into words before byte-pair merging, by the names GGUF files use.

Each name stands for expressions applied one after the other to what the earlier ones left in one piece; a match is a
word, and so is what lies between matches. The expressions are those of the models' own tokenizers (gpt-2, smollm,
llama-bpe, qwen2) and, for "default", llama.cpp's choice for files that name none.
"""

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as Chain

ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = rf"{ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"


def _modern(digits: str) -> str:
    """One expression since GPT-4: a word takes one leading mark with it, and line ends stay together."""
    return (
        rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


LLAMA3 = (_modern(r"\p{N}{1,3}"),)
QWEN2 = (_modern(DIGIT),)
EXPRESSIONS = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (GPT2,),
    "phi-2": (GPT2,),
    "smollm": (DIGIT, GPT2),
    "starcoder": (DIGIT, GPT2),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """Cuts a text into words and spells them in GPT-2's alphabet of bytes. Raises KeyError for an unknown name."""
    splits = [Split(Regex(expression), behavior="isolated") for expression in EXPRESSIONS[name]]
    return Chain([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


def keeps_whole_words(name: str) -> bool:
    """Whether a word that is a token as a whole is taken as such, whatever the merges say."""
    return EXPRESSIONS[name] is LLAMA3


def composes_characters(name: str) -> bool:
    """Whether a letter and its accent are made one character (NFC) before the text is cut."""
    return EXPRESSIONS[name] is QWEN2
