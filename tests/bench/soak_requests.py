"""What a soak asks of a server: requests of every kind, and such as must be refused. Pure, given a source of chance."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Body: TypeAlias = Mapping[str, Any]

MAX_TOKENS = 40
_TEXT = "one two three, one two three, the sea and the sun; then a ship and a song, and in the end an answer."
_STOPS = (["."], [" the", "\n\n"], ["and", ", "])


@dataclass(frozen=True)
class Offer:
    """What the server takes."""

    model: str
    context_length: int
    drafters: Sequence[str]
    takes_auto: bool
    takes_rules: bool


def random_bodies(offer: Offer, count: int, seed: int) -> list[Body]:
    chance = random.Random(seed)
    return [_random_body(offer, chance) for _ in range(count)]


def _random_body(offer: Offer, chance: random.Random) -> Body:
    length = int(5 * (offer.context_length / 4 / 5) ** chance.random())  # in characters, so fewer tokens
    text = " ".join(chance.choices(_TEXT.split(), k=length))[:length]
    body: dict[str, Any] = {"model": offer.model, "max_tokens": chance.randint(1, MAX_TOKENS)}
    if chance.random() < 0.3:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    body["speculative_depth"] = chance.choice([*range(9), *["auto"] * offer.takes_auto])
    body["drafter"] = chance.choice([*offer.drafters, "none"])
    body["temperature"] = chance.choice([0, 0, 0.7, 1.2])
    if body["temperature"]:
        body.update(seed=chance.randrange(2**31), top_p=chance.choice([0.9, 1.0]), top_k=chance.choice([0, 40]))
        if offer.takes_rules:
            body["acceptance"] = chance.choice(["coupled", "block", "rejection"])
    if chance.random() < 0.2:
        body["stop"] = chance.choice(_STOPS)
    if chance.random() < 0.2:
        body.update(frequency_penalty=0.4, repetition_penalty=1.1)
    return body


def path_of(body: Body) -> str:
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def solo_body(body: Body) -> Body | None:
    """What must give the same answer when nothing else is asked: plain decoding where that is promised, else the very
    request; None where no more than the law is promised."""
    if body["temperature"] == 0 or body.get("acceptance") == "coupled":
        return {**body, "speculative_depth": 0, "drafter": "none"}
    if body["speculative_depth"] == "auto" and body["drafter"] != "none":
        return None
    return body


def bad_bodies(offer: Offer) -> list[tuple[Body | str, int]]:
    """Bodies for completions that must be refused, each with the status that says so."""
    good = {"model": offer.model, "prompt": "one", "max_tokens": 2}
    return [
        ("{", 400),
        ("[]", 400),
        ({**good, "model": "another"}, 404),
        ({**good, "temperature": 9}, 400),
        ({**good, "max_tokens": 0}, 400),
        ({**good, "max_tokens": offer.context_length + 1}, 400),
        ({**good, "prompt": []}, 400),
        ({**good, "prompt": [2**30]}, 400),
        ({**good, "prompt": "one " * offer.context_length}, 400),
        ({**good, "logit_bias": {str(2**30): 1}}, 400),
        ({**good, "drafter": "nobody"}, 400),
        ({**good, "speculative_depth": -1}, 400),
        ({**good, "no_such_field": 1, "stream": True}, 400),
    ]
