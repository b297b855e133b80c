"""Pages of reports as their elements and texts."""

import base64
import hashlib
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """A page as its elements and its text; refuses tags that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = "".join(self.pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag not in ("b", "bdi", "i", "a"):
            self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.pieces.append(data)
        if any(re.fullmatch("h[1-6]", tag) for tag in self.open):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of one kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def of(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value for _, attributes in self.elements if (value := attributes.get(name))]

    @property
    def line(self) -> str:
        """Its text with all white space as single blanks."""
        return " ".join(self.text.split())


def check_sealed(html: str) -> None:
    """A page loads nothing, runs its own code alone, and every link leads to an id that stands once."""
    page = Page(html)
    ids, linked = page.of("id"), page.of("href") + [f"#{one}" for one in " ".join(page.of("aria-labelledby")).split()]
    assert len(ids) == len(set(ids))
    assert set(linked) <= {"data:,", *(f"#{name}" for name in ids)}
    assert not page.of("src") + page.of("srcset") + page.of("xlink:href") + page.of("style")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import|https?:", html.replace("http://www.w3.org/2000/svg", ""))
    allowed = ["default-src 'none'", "base-uri 'none'", "img-src data:"]
    for name in ("style", "script"):
        own = re.findall(f"<{name}>(.*?)</{name}>", html, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in own]
        allowed += [" ".join([f"{name}-src", *(f"'sha256-{one}'" for one in hashes)])] if own else []
    assert [value for value in page.of("content") if value.startswith("default-src")] == ["; ".join(allowed)]
