"""Reads what a notebook would show, and checks that it is well-formed and harmless."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

VOID = {"br", "hr", "img"}


class Balanced(HTMLParser):
    """Every element that is opened is closed, and none of them is a script or names another
    place.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in {"script", "iframe", "link"}
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onerror"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"


def words(shown: Any) -> str:
    return Balanced(shown._repr_html_()).words
