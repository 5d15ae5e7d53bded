"""Bodies that one may send, by what they are for. Together they show every field that is supported.

`MODEL` stands for the name of the model that is being served.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Examples: TypeAlias = Mapping[str, Mapping[str, Any]]

MODEL = "smollm2"

_SAMPLING = {
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"42": -100},
    "seed": 7,
}
_ENDING = {"stop": ["\n\n"], "stop_token_ids": [2], "min_tokens": 4, "ignore_eos": True}
_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "What the weather is like in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
# What the output keeps to, in each way there is to say so, by what it is.
_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "JSON": {"response_format": {"type": "json_object"}},
    "JSON by a schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": _PERSON, "strict": True}}
    },
    "a regular expression": {"structured_outputs": {"regex": "[a-h]{2,8}"}},
    "JSON by a schema, as older clients of vLLM ask for it": {"guided_json": _PERSON},
    "a regular expression, likewise": {"guided_regex": "[a-h]{2,8}"},
    "one of some texts, likewise": {"guided_choice": ["yes", "no"]},
    "a grammar, likewise": {"guided_grammar": 'start: "yes" | "no"'},
}
_SPECULATION = {"speculative_depth": 4, "drafter": "ngram", "acceptance": "coupled"}
_SERVING = {"priority": -1, "timeout_s": 30, "cache_salt": "a secret of mine", "user": "somebody"}

COMPLETIONS: Examples = {
    "a prompt": {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 64, "temperature": 0, **_ENDING},
    "sampling": {"model": MODEL, "prompt": [72, 101, 108, 108, 111], "max_tokens": 16, **_SAMPLING},
    "several choices": {"model": MODEL, "prompt": ["Once", "Twice"], "max_tokens": 16, "n": 2, "best_of": 3},
    "scoring a text": {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 0, "echo": True, "logprobs": 5},
    "filling in": {"model": MODEL, "prompt": "def add(a, b):\n", "suffix": "\n    return c", "max_tokens": 16},
    "streaming": {
        "model": MODEL,
        "prompt": "Once upon a time",
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    **{name: {"model": MODEL, "prompt": "Answer: ", "max_tokens": 64, **kept_to} for name, kept_to in _FORMATS.items()},
    "a fixed depth": {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 64, "num_draft_tokens": 3},
    "speculation": {
        "model": MODEL,
        "prompt": "def add(a, b):",
        "max_tokens": 64,
        "prediction": {"type": "content", "content": "    return a + b"},
        **_SPECULATION,
        **_SERVING,
    },
}

# What hosted services want to know, and what changes nothing here.
_HOSTED = {
    "metadata": {"project": "fairy tales"},
    "prompt_cache_key": "fairy tales",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "somebody",
    "service_tier": "auto",
    "store": False,
}
_QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}]

_CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}

CHATS: Examples = {
    "a question": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        "max_completion_tokens": 64,
        "temperature": 0,
        **_ENDING,
    },
    "sampling": {"model": MODEL, "messages": _QUESTION, "max_tokens": 16, **_SAMPLING},
    "several choices": {"model": MODEL, "messages": _QUESTION, "max_tokens": 16, "n": 2},
    "log probabilities": {"model": MODEL, "messages": _QUESTION, "max_tokens": 16, "logprobs": True, "top_logprobs": 5},
    "streaming": {
        "model": MODEL,
        "messages": _QUESTION,
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "tools": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
        "max_tokens": 64,
        "tools": [_WEATHER],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    },
    "a tool's answer": {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": "What is the weather in Oslo?"},
            {"role": "assistant", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ],
        "max_tokens": 64,
        "tools": [_WEATHER],
    },
    "going on with a message": {
        "model": MODEL,
        "messages": [*_QUESTION, {"role": "assistant", "content": "Because"}],
        "max_tokens": 16,
        "continue_final_message": True,
        "add_generation_prompt": False,
        "chat_template_kwargs": {"enable_thinking": False},
    },
    **{
        name: {"model": MODEL, "messages": _QUESTION, "max_tokens": 64, **kept_to} for name, kept_to in _FORMATS.items()
    },
    "a fixed depth": {"model": MODEL, "messages": _QUESTION, "max_tokens": 16, "num_draft_tokens": 3, **_HOSTED},
    "speculation": {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Write add in Python."}]}],
        "max_tokens": 64,
        "prediction": {"type": "content", "content": "def add(a, b):\n    return a + b"},
        **_SPECULATION,
        **_SERVING,
    },
}

TOKENIZING: Examples = {
    "a prompt": {"model": MODEL, "prompt": "Once upon a time", "add_special_tokens": False, "return_token_strs": True},
    "a chat": {"model": MODEL, "messages": _QUESTION, "add_generation_prompt": False, "tools": [_WEATHER]},
    "a message to be continued": {
        "messages": [*_QUESTION, {"role": "assistant", "content": "Because"}],
        "continue_final_message": True,
        "chat_template_kwargs": {"enable_thinking": False},
    },
}

DETOKENIZING: Examples = {"tokens": {"model": MODEL, "tokens": [72, 101, 108, 108, 111]}}
