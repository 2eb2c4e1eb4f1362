"""Writes debian/copyright of the plugin's package: our licence, and that of each crate that is linked into it.

Reads `cargo metadata` from standard input. A crate's text of licence comes from its own files; one without a known licence
is an error, so that none is left out in silence.
"""

import json
import re
import sys
from pathlib import Path

# Which of the licences that a crate offers is taken, best first: those that go with the server's GPL-2.0.
CHOICES = ("MIT", "BSD-3-Clause", "BSD-2-Clause", "ISC", "Zlib", "Unlicense", "0BSD", "Unicode-3.0")
OURS = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: The RRD storage engine for MariaDB

Files: *
Copyright: 2026 The RRD engine's authors
License: GPL-2
 This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public License,
 version 2, as published by the Free Software Foundation.
 .
 It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied warranty of
 MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.
 .
 On Debian systems the whole text is in /usr/share/common-licenses/GPL-2.

Files: vendor/rust-std/*
Copyright: The Rust Project Developers
License: MIT
 Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
 files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
 modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
 Software is furnished to do so, subject to the following conditions:
 .
 The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
 Software.
 .
 THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
 WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
 COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
 ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def main():
    metadata = json.load(sys.stdin)
    packages = {package["id"]: package for package in metadata["packages"]}
    parts = [OURS]
    for package in sorted(linked(metadata, packages), key=lambda package: (package["name"], package["version"])):
        parts.append(stanza(package))
    print("\n".join(parts), end="")


def linked(metadata, packages):
    """The crates that the plugin is built from: those that it needs at run time, ours left out."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(package["id"] for package in packages.values() if package["name"] == "rrd-ffi")
    seen, to_see = set(), [root]
    while to_see:
        node = to_see.pop()
        if node in seen or is_macro(packages[node]):
            continue
        seen.add(node)
        for dependency in nodes[node]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                to_see.append(dependency["pkg"])
    return [packages[node] for node in seen if packages[node]["source"]]


def is_macro(package):
    """Whether the crate runs in the compiler only."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def stanza(package):
    chosen = choose(package)
    text = licence_text(Path(package["manifest_path"]).parent, chosen)
    holders = re.findall(r"^\s*(Copyright .*?)\s*$", text, re.MULTILINE) or package["authors"] or ["its authors"]
    holders = "\n ".join(holder.removeprefix("Copyright ").removeprefix("(c) ") for holder in holders)
    body = "\n".join(" " + (line.rstrip() or ".") for line in text.strip().splitlines())
    label = f"{chosen} of {package['name']}".replace(" ", "-")
    return f"Files: vendor/{package['name']}-{package['version']}/*\nCopyright: {holders}\nLicense: {label}\n{body}\n"


def choose(package):
    """The licences that apply: one of those offered with OR, all of those joined with AND."""
    chosen = []
    for part in re.split(r"\s+AND\s+", package["license"]):
        offered = re.split(r"\s+OR\s+|/", part.strip("() "))
        one = next((choice for choice in CHOICES if choice in offered), None)
        if one is None:
            sys.exit(f"copyright: none of the licences of {package['name']} goes with the server's: {package['license']}")
        chosen.append(one)
    return " and ".join(chosen)


def licence_text(folder, chosen):
    """The text of the licence: the crate's own file, or the one it shares with all crates of its name."""
    files = sorted(file for file in folder.iterdir() if re.match(r"(LICEN[CS]E|COPYING|UNLICENSE)", file.name, re.IGNORECASE))
    words = [word.lower().split("-")[0] for word in chosen.split(" and ")]
    named = [file for file in files if any(word in file.name.lower() for word in words)]
    plain = [file for file in files if file.name.upper() in ("LICENSE", "LICENSE.TXT", "LICENSE.MD", "COPYING")]
    taken = named or plain
    if not taken:
        return f"Licensed under {chosen}; the crate carries no text of it."
    return "\n\n".join(file.read_text(errors="replace") for file in taken)


if __name__ == "__main__":
    main()
