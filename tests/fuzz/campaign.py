"""Many requests in a row against one server, and a count of what came back.

Knows hypothesis and schemathesis, which think the requests up. Knows no field.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis import checks as built_in

from mtplx.server.schemas.examples import CHATS, COMPLETIONS, DETOKENIZING, TOKENIZING, Examples
from tests.fuzz.attempts import attempts
from tests.fuzz.server import DEADLINE_S, Sender, check_answer
from tests.server.conftest import Client

Made = TypeVar("Made")

EXAMPLES: Mapping[str, Examples] = {
    "/v1/completions": COMPLETIONS,
    "/v1/chat/completions": CHATS,
    "/tokenize": TOKENIZING,
    "/detokenize": DETOKENIZING,
}

STREAMING = ("/v1/completions", "/v1/chat/completions")

_MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
_CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


class Campaign:
    """Sends requests that `seed` determines. `statuses` counts the answers by status; None: nobody stayed for it."""

    def __init__(self, client: Client, model: str, seed: int) -> None:
        self._client = client
        self._model = model
        self._seed = seed
        self.statuses: Counter[int | None] = Counter()
        built_in.load_all_checks()
        self._checks = built_in.CHECKS.get_by_names(_CHECKS)

    def send_strange(self, count: int) -> None:
        """Requests that begin with our examples and end anywhere."""
        with Sender(self._client) as sender:
            self._repeat(count, attempts(EXAMPLES, self._model), sender.send)

    def send_described(self, count: int) -> None:
        """Requests that the API's own description allows, and others that it just forbids. Answers are as it says."""
        cases = [operation.as_strategy(generation_mode=mode) for operation in self._operations for mode in _MODES]
        with requests.Session() as session:

            def send(case: Case) -> int:
                hypothesis.note(case.as_curl_command())
                return self._send_case(case, session)

            self._repeat(count, st.one_of(cases), send)

    def send_examples(self) -> None:
        """Each example in the API's own description, as it is and as a stream."""
        with requests.Session() as session:
            for operation in self._operations:
                for body in EXAMPLES.get(operation.path, {}).values():
                    for stream in ({}, {"stream": True}) if operation.path in STREAMING else ({},):
                        case = operation.Case(body={**body, **stream}, media_type="application/json")
                        self.statuses[self._send_case(case, session)] += 1

    @cached_property
    def _operations(self) -> list[schemathesis.APIOperation]:
        description = schemathesis.openapi.from_dict(self._client.get("/openapi.json").json())
        return [operation.ok() for operation in description.get_all_operations()]

    def _send_case(self, case: Case, session: requests.Session) -> int:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = self._model
        # Not by its own `call`, which reads only the beginning of a stream.
        parts = case.as_transport_kwargs(base_url=str(self._client.base_url).rstrip("/"))
        response = session.request(**parts, timeout=DEADLINE_S)
        check_answer(case.method, response.status_code, response.headers["content-type"], response.content)
        case.validate_response(response, checks=self._checks)
        return response.status_code

    def _repeat(self, count: int, strategy: st.SearchStrategy[Made], send: Callable[[Made], int | None]) -> None:
        @hypothesis.seed(self._seed)
        @hypothesis.settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def send_each(made: Made) -> None:
            self.statuses[send(made)] += 1

        send_each()
