"""Check a built site: python docs/book/check.py build/book/html.

Every link within the site must lead to a page, and to a place on it. No page may load anything from another
site, so that a class without a network sees all of it.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

# Elements that a browser loads by itself; it follows a link only on a click.
FETCHED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
    "embed": "src", "object": "data", "track": "src",
}  # fmt: skip
FETCHED_LINKS = {
    "stylesheet",
    "icon",
    "shortcut",
    "preload",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "manifest",
}
OF_STYLES = re.compile(r"""(?:@import\s+(?:url\(\s*)?|url\(\s*)["']?(?!data:|#)([^"')\s]+)""")


class Page(HTMLParser):
    """A page's anchors, its links, the files it loads, and its pictures without a text alternative."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.fetched, self.wordless = {""}, [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Record the references of an element."""
        told = dict(attributes)
        self.places |= {told[name] for name in ("id", "name") if told.get(name)}
        if tag == "a" and told.get("href"):
            self.links.append(told["href"])
        if tag == "link" and FETCHED_LINKS & set((told.get("rel") or "").split()):
            self.fetched.append(told.get("href") or "")
        if told.get(FETCHED.get(tag, "")):
            self.fetched.append(told[FETCHED[tag]])
        self.fetched += OF_STYLES.findall(told.get("style") or "")
        if tag == "img" and told.get("alt") in (None, "", told.get("src")):  # Sphinx's stopgap is the file
            self.wordless.append((told.get("src") or "")[:80])


def problems(folder):
    """Return the problems of a site, one line each; [] if there are none."""
    pages = {
        path.relative_to(folder).as_posix(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))
    }
    found = []
    for name, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if link in page.fetched:
                    found.append(f"{name} fetches from elsewhere: {link}")
                continue
            target, place = urldefrag(urljoin(f"/{name}", link))
            target, place = unquote(target).lstrip("/").partition("?")[0], unquote(place)
            if not (folder / target).is_file():
                found.append(f"{name} leads to no file: {link}")
            elif target in pages and place not in pages[target].places:
                found.append(f"{name} leads to no place on its page: {link}")
        found += [f"{name} has a picture without words: {source}" for source in page.wordless]
    for path in sorted(folder.rglob("*.css")):
        for source in OF_STYLES.findall(path.read_text()):
            if urlsplit(source).netloc:
                found.append(f"{path.relative_to(folder)} fetches from elsewhere: {source}")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "Every link leads somewhere, and nothing is fetched from elsewhere.")
    sys.exit(bool(wrong))
