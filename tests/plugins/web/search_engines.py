"""Three search engines on loopback, with the fields that their documentation shows.

Tavily: https://docs.tavily.com/documentation/api-reference/endpoint/search
Brave: https://api-dashboard.search.brave.com/app/documentation/web-search/get-started
Exa: https://docs.exa.ai/reference/search and https://exa.ai/docs/sdks/typescript-sdk-specification
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.doubles.web_server import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.web_server import SiteRequest

KEY = "key-of-the-tests-0123456789"

FOUND = (
    ("httpx timeouts", "https://www.example.org/httpx", "All timeouts are five seconds."),
    ("asyncio & time", "https://docs.example.org/asyncio", "asyncio.timeout limits a block."),
    ("Third", "https://third.example.org/", "The third."),
)


def as_json(value: Mapping[str, Any], status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


def tavily(request: SiteRequest) -> Answer:
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return as_json({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
    asked = json.loads(request.body)
    rows = [
        {"title": title, "url": url, "content": text, "score": 0.9, "raw_content": None}
        for title, url, text in FOUND[: asked["max_results"]]
    ]
    return as_json(
        {
            "query": asked["query"],
            "follow_up_questions": None,
            "answer": None,
            "images": [],
            "results": rows,
            "response_time": 1.1,
        }
    )


def brave(request: SiteRequest) -> Answer:
    if request.method != "GET" or request.headers.get("x-subscription-token") != KEY:
        error = {
            "id": "1",
            "status": 422,
            "code": "SUBSCRIPTION_TOKEN_INVALID",
            "detail": "The provided subscription token is invalid.",
        }
        return as_json({"type": "ErrorResponse", "error": error}, 422)
    asked = parse_qs(urlsplit(request.path).query)
    rows = [
        {
            "title": title.replace("&", "&amp;"),
            "url": url,
            "description": f"<strong>{text}</strong>",
            "age": "May 1, 2026",
        }
        for title, url, text in FOUND[: int(asked["count"][0])]
    ]
    return as_json(
        {
            "type": "search",
            "query": {"original": asked["q"][0]},
            "web": {"type": "search", "results": rows},
        }
    )


def exa(request: SiteRequest) -> Answer:
    if request.headers.get("x-api-key") != KEY:
        return as_json({"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}, 401)
    asked = json.loads(request.body)
    rows = [
        {
            "id": url,
            "title": title,
            "url": url,
            "publishedDate": "2026-01-01",
            "author": None,
            "highlights": [text] if asked["contents"]["highlights"] else None,
            "highlightScores": [0.5],
        }
        for title, url, text in FOUND[: asked["numResults"]]
    ]
    return as_json({"requestId": "a78e", "results": rows, "costDollars": {"total": 0.005}})
