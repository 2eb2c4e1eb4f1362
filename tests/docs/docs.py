"""Compares the documents with the code and with a running server.

Each check returns the lines that are wrong. A document is wrong in two ways: it names something that does not exist, or it
leaves something out that exists; variables, columns, options and plugins are compared in both directions.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PrivateServer  # noqa: E402

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
# Folders of files that are not the project's own.
MADE = ("build", ".git")
NOT_OURS = re.compile(r"^(https?:|mailto:)")


def tracked():
    """The files of the repository, new ones that are not ignored included; without git all but what is made."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    files = [ROOT / line for line in done.stdout.splitlines()]
    if done.returncode != 0:
        files = [file for file in ROOT.rglob("*") if file.relative_to(ROOT).parts[0] not in MADE]
    return [file for file in files if file.is_file()]


FILES = tracked()
DOCUMENTS = [file for file in FILES if file.suffix == ".md"]


def without_code(text):
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def anchors(document):
    """The anchors of a document's headings, as the usual viewers make them."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", without_code(document.read_text()), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def links():
    """Links to files and headings that do not exist."""
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text())):
            if NOT_OURS.match(target):
                continue
            path, _, anchor = target.partition("#")
            file = (document.parent / path).resolve() if path else document
            if not file.exists():
                yield f"{document.relative_to(ROOT)}: no file {target}"
            elif anchor and anchor not in anchors(file):
                yield f"{document.relative_to(ROOT)}: no heading {target}"


def paths():
    """Files of the repository that a document or a comment names and that do not exist."""
    pattern = re.compile(r"`((?:crates|handler|tests|scripts|docs|bench|packaging)/[\w./-]+)`")
    for file in FILES:
        if file.suffix not in (".md", ".rs", ".cc", ".h", ".py", ".sh", ".toml") or file.name == "CHANGELOG.md":
            continue
        for path in pattern.findall(file.read_text()):
            if not (ROOT / path).exists():
                yield f"{file.relative_to(ROOT)}: no {path}"
    for file in FILES:
        if file.suffix in (".rs", ".cc", ".h", ".py", ".sh", ".toml") or file.name == "run":
            for path in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text()):
                if not (ROOT / path).exists():
                    yield f"{file.relative_to(ROOT)}: no {path}"


def orphans():
    """Documents that no other document links to."""
    linked = set()
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s#]+)", document.read_text()):
            linked.add((document.parent / target).resolve())
    for document in DOCUMENTS:
        if document != ROOT / "README.md" and document not in linked:
            yield f"{document.relative_to(ROOT)}: no document links to it"


def first_cells(document, section=None):
    """The names in backticks in the first cells of the tables of a document, or of one of its sections."""
    text = document.read_text()
    if section:
        text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.S | re.M)[1]
    names = []
    for cell in re.findall(r"^\| ([^|]*) \|", text, re.M):
        names += re.findall(r"`(\w+)`", cell)
    return names


def both_ways(kind, documented, real):
    """What is documented and does not exist, and the other way round."""
    for name in sorted(set(documented) - set(real)):
        yield f"{kind} {name} is documented and does not exist"
    for name in sorted(set(real) - set(documented)):
        yield f"{kind} {name} exists and is not documented"
    for name in sorted({name for name in documented if documented.count(name) > 1}):
        yield f"{kind} {name} is documented twice"


def options():
    """The options of tables and columns."""
    declared = (ROOT / "handler/options.cc").read_text()
    tables = re.findall(r'HA_TOPTION_\w+\("(\w+)"', declared) + ["MAX_ROWS"]
    columns = re.findall(r'HA_FOPTION_\w+\("(\w+)"', declared)
    yield from both_ways("table option", first_cells(REFERENCE / "options.md", "Options of a table"), tables)
    yield from both_ways("column option", first_cells(REFERENCE / "options.md", "Options of a column"), columns)


def system_variables(server):
    """System variables and their defaults."""
    document = REFERENCE / "variables.md"
    real = server.sql("SELECT LOWER(variable_name), default_value FROM information_schema.system_variables WHERE variable_name LIKE 'rrd%'")
    yield from both_ways("system variable", first_cells(document, "System variables"), [name for name, _ in real])
    for name, default in real:
        line = re.search(rf"^\| `{name}` \|[^|]*\| ([^|]*) \|", document.read_text(), re.M)
        documented = line[1].strip().strip("`") if line else None
        if default not in ("NULL", "") and documented != default:
            yield f"system variable {name}: the default is {default}, documented is {documented}"


def status_variables(server):
    """Status variables."""
    real = [name for name, _ in server.sql("SHOW GLOBAL STATUS LIKE 'Rrd%'")]
    yield from both_ways("status variable", first_cells(REFERENCE / "variables.md", "Status variables"), real)


def information_schema(server):
    """Tables of INFORMATION_SCHEMA and their columns. Columns that several tables have need to be explained once."""
    document = (REFERENCE / "information-schema.md").read_text()
    sections = dict(re.findall(r"^## (RRD_\w+)\n(.*?)(?=^## |\Z)", document, re.S | re.M))
    statement = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'information_schema' AND table_name LIKE 'RRD%'"
    real = server.sql(statement)
    yield from both_ways("INFORMATION_SCHEMA table", list(sections), {table for table, _ in real})
    explained = {"TABLE_SCHEMA", "TABLE_NAME", "PARTITION_NAME"}
    for text in sections.values():
        for cell in re.findall(r"^\| ([A-Z_, ]+) \|", text, re.M):
            explained |= set(cell.split(", "))
    for name in sorted({column for _, column in real} - explained):
        yield f"column {name} of INFORMATION_SCHEMA is not documented"
    for name in sorted(explained - {column for _, column in real}):
        yield f"column {name} of INFORMATION_SCHEMA is documented and does not exist"


def plugins(server):
    """Plugins of the library."""
    real = [name for (name,) in server.sql("SELECT plugin_name FROM information_schema.plugins WHERE plugin_library LIKE 'ha_rrd%'")]
    yield from both_ways("plugin", first_cells(DOCS / "howto/install.md", "What the library contains"), real)


def versions():
    """Versions of the formats on disk."""
    for document, source in (
        ("format-log.md", "crates/store/src/wal/frame.rs"),
        ("format-segment.md", "crates/store/src/segment/format.rs"),
    ):
        version = re.search(r"const VERSION: u32 = (\d+);", (ROOT / source).read_text())[1]
        if not re.search(rf"version,? {version}\b|version: {version}\b", (DOCS / "internals" / document).read_text()):
            yield f"{document} does not say version {version}, which {source} writes"
    manifest = re.search(r"const VERSION: u32 = (\d+);", (ROOT / "crates/store/src/manifest/file.rs").read_text())[1]
    if f"manifest version {manifest}" not in (DOCS / "internals/format-log.md").read_text():
        yield f"format-log.md does not say manifest version {manifest}"


# Tables on which a documented mistake of an option shows.
MISTAKEN = (
    "CREATE TABLE mistaken (sensor_id INT NOT NULL, ts INT NOT NULL, v INT, PRIMARY KEY (sensor_id, ts)) ENGINE=RRD",
    "CREATE TABLE mistaken (ts INT NOT NULL, v INT, PRIMARY KEY (ts)) ENGINE=RRD",
    "CREATE TABLE mistaken (sensor_id INT NOT NULL, ts TIMESTAMP NOT NULL, v INT, PRIMARY KEY (sensor_id, ts)) ENGINE=RRD",
)


def error_of(server, statement):
    """The number and text with which a CREATE TABLE fails."""
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        try:
            cursor.execute(statement)
            cursor.execute("DROP TABLE mistaken")
        except MySQLError as error:
            return (error.args[0], error.args[1].removeprefix("ENGINE=RRD: "))
    return None


def option_errors(server):
    """The errors of options, as they are documented."""
    block = re.search(r"^## Errors\n+```\n(.*?)```", (REFERENCE / "options.md").read_text(), re.S | re.M)[1]
    lines = re.findall(r"^(\w+='[^']*')\s+(\d+)\s+(.*)$", block, re.M)
    if not lines:
        yield "options.md has no errors to compare"
    for option, number, text in lines:
        answers = [error_of(server, f"{statement} {option}") for statement in MISTAKEN]
        if (int(number), text) not in answers:
            yield f"{option}: {number} {text!r} is documented; the server says {answers}"


def source_texts():
    """All sources as one text in which texts that are continued on the next line are whole."""
    parts = []
    for file in FILES:
        if file.suffix in (".rs", ".cc", ".h"):
            text = re.sub(r"\\\n\s*", "", file.read_text())
            parts.append(re.sub(r'"\s*\n\s*"', "", text))
    return "\n".join(parts).replace('\\"', '"')


def messages():
    """Messages in the tables of failures: each longer piece between names and numbers is in the code."""
    sources = source_texts()
    for name in ("howto/repair.md", "howto/replicate.md"):
        text = re.sub(r"\n(?=\S)", " ", (DOCS / name).read_text())
        found = re.findall(r"`((?:\[\w+\] )?(?:\d{4} )?(?:ENGINE=RRD|\.\.\.) ?:?[^`]*)`", text)
        if not found:
            yield f"{name} has no message to compare"
        for message in found:
            message = re.sub(r"^(\[\w+\] )?(\d{4} )?(ENGINE=RRD:|\.\.\.) ?", "", message)
            message = re.sub(r"No such file or directory \(os error 2\)", "", message)
            for piece in re.split(r"(?<!\w)'[^']*'|\b\d+\b|\.\.\.|\. ", message):
                piece = piece.strip(" :.")
                if len(piece) >= 12 and piece not in sources:
                    yield f"{name}: no message has {piece!r}"


def tutorial(server):
    """The tutorial's statements give the answers that it shows."""
    text = (DOCS / "tutorial.md").read_text()
    server.sql("DROP DATABASE IF EXISTS tutorial")
    server.sql("SET GLOBAL time_zone = '+00:00'")
    asked = 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
        if language == "sql":
            server.sql(block, None if "CREATE DATABASE" in block else "tutorial")
        elif block.startswith("> "):
            for question in re.split(r"^> ", block, flags=re.M)[1:]:
                lines = question.splitlines()
                shown = [line for line in lines if line.startswith("|")]
                statement = " ".join(line for line in lines if not re.match(r"[|+]|Warning", line))
                given = server.sql(statement, "tutorial")
                answers = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
                # With a frame the first line names the columns.
                if "+-" in question:
                    answers = answers[1:]
                asked += 1
                if answers and answers != given and "data_bytes" not in statement:
                    yield f"tutorial: {statement}: shows {answers}, the server says {given}"
                for warning in re.findall(r"^Warning \(Code (\d+)\)", question, re.M):
                    if warning not in str(server.sql(f"{statement}; SHOW WARNINGS", "tutorial")):
                        yield f"tutorial: {statement} gives no warning {warning}"
    if asked < 8:
        yield f"only {asked} questions of the tutorial were found"


def main():
    """Runs all checks and counts them."""
    passed = failed = 0
    with PrivateServer(ROOT / "build/test/docs") as server:
        for check in (links, paths, orphans, options, versions, messages):
            passed, failed = count(check.__name__, list(check()), passed, failed)
        for check in (system_variables, status_variables, information_schema, plugins, option_errors, tutorial):
            passed, failed = count(check.__name__, list(check(server)), passed, failed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def count(name, wrong, passed, failed):
    """Prints what a check found, and counts it."""
    for line in wrong:
        print(f"FAIL {name}: {line}")
    if not wrong:
        print(f"ok {name}")
    return (passed, failed + 1) if wrong else (passed + 1, failed)


if __name__ == "__main__":
    sys.exit(main())
