"""Whatever is sent, the server answers, honestly and in OpenAI's form, and is itself afterwards.

Some hundreds of requests, the same ones each time; `make fuzz` sends thousands of others.
"""

from tests.fuzz.campaign import Campaign
from tests.fuzz.server import fuzzed_server
from tests.server.engines import MODEL, letter_engine

SEED = 6


def test_strange_requests_get_honest_answers() -> None:
    with fuzzed_server(letter_engine()) as client:
        campaign = Campaign(client, MODEL, SEED)
        campaign.send_strange(300)
        assert set(campaign.statuses) >= {200, 400, 404, 405, 415}
        assert client.complete(prompt="abc", max_tokens=3).status_code == 200


def test_requests_from_the_description_get_answers_as_described() -> None:
    with fuzzed_server(letter_engine()) as client:
        campaign = Campaign(client, MODEL, SEED)
        campaign.send_described(100)
        assert set(campaign.statuses) >= {200, 400}


def test_every_example_is_served_as_described() -> None:
    with fuzzed_server(letter_engine()) as client:
        campaign = Campaign(client, MODEL, SEED)
        campaign.send_examples()
        # The letters' tokenizer has no tokens to fill in with; the best of several texts cannot be streamed.
        assert campaign.statuses[200] == campaign.statuses.total() - 3
