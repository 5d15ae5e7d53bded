"""The page about the API: readable without internet, and whole."""

import re
from html.parser import HTMLParser

from mtplx.server.docs import page
from tests.server.conftest import Client


class Page(HTMLParser):
    """What a page says, what it leads to and what it would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a":
            self.links.add(given["href"])
        elif tag in ("script", "link", "img", "iframe") or {"src", "href"} & given.keys():
            self.loads.add(tag)


def test_the_page_tells_every_path_schema_and_field_of_the_document(client: Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    told, document = Page(response.text), client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        assert all(f"{method.upper()} {path}" in told.text for method in operations)
    for name, schema in document["components"]["schemas"].items():
        assert f"schema-{name}" in told.ids
        assert all(field in told.text for field in schema.get("properties", {}))
    assert "Tokens to draft a round" in told.text


def test_it_loads_nothing_and_leads_only_to_itself_and_the_document(client: Client) -> None:
    html = client.get("/docs").text
    told = Page(html)
    assert told.loads == set()
    assert {link for link in told.links if not link.startswith("#")} == {"openapi.json"}
    assert {link[1:] for link in told.links if link.startswith("#")} <= told.ids
    assert not re.search(r"url\(|@import", html)


def test_types_are_told_in_words_and_texts_as_they_are() -> None:
    fields = {
        "names": {"type": "array", "items": {"$ref": "#/components/schemas/Name"}, "maxItems": 4},
        "depth": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "auto"}, {"type": "null"}]},
        "free": {"description": "<b> & more"},
    }
    schemas = {"Body": {"properties": fields, "required": ["depth"]}, "Name": {"type": "string"}}
    told = Page(page({"info": {"title": "t", "version": "1"}, "paths": {}, "components": {"schemas": schemas}}))
    text = " ".join(told.text.split())
    assert "names list of Name, 4 items or fewer" in text
    assert 'depth (required) integer, ≥ 0 or "auto" or null' in text
    assert "free anything<b> & more" in text


def test_what_must_be_there_comes_first_and_code_is_marked() -> None:
    fields = {"b": {"type": "integer", "minimum": 1.0, "description": "As `a`, but < 2."}, "a": {"type": "string"}}
    schema = {"properties": fields, "required": ["a"], "description": ""}
    html = page({"info": {"title": "t", "version": "1"}, "paths": {}, "components": {"schemas": {"S": schema}}})
    assert html.index("<code>a</code> (required)") < html.index("<code>b</code>")
    assert "integer, \N{GREATER-THAN OR EQUAL TO} 1<td>As <code>a</code>, but &lt; 2." in html


def test_what_the_document_says_is_text() -> None:
    hostile = "<script>alert(1)</script>"
    operation = {"operationId": hostile, "summary": f"`{hostile}`", "responses": {hostile: {"description": hostile}}}
    schema = {"description": hostile, "properties": {hostile: {"const": hostile, "description": hostile}}}
    html = page(
        {
            "info": {"title": hostile, "version": hostile},
            "paths": {hostile: {"get": operation}},
            "components": {"schemas": {hostile: schema}},
        }
    )
    assert hostile in Page(html).text
    assert not Page(html).loads
