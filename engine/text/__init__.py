"""Text and tokens: tokenizers, chat templates, incremental detokenization, stop strings. Knows no model."""
