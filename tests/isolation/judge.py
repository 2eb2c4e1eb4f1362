"""Judges histories of transactions: which anomalies after Adya do they show?

A history is a list of transactions on keys that hold lists. A transaction appends values, each of which occurs once in all of
the history, and reads lists. What a read shows tells whose appends it saw, and the final list of a key the order of all of its
appends. From that follow the dependencies of transactions:

  ww  both appended to a key, the one right behind the other
  wr  the second saw what the first appended last
  rw  the first did not see what the second appended next

A circle of dependencies cannot come from any order of transactions. Not every level promises that there is none: rw counts only
for reads that bind (Read.binds), as Adya's mixing of levels has it: reads that lock, and those of transactions that only read
from one snapshot. The judge knows nothing of the engine.
"""

import collections
import dataclasses

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

ANOMALIES = (
    "G0",  # a circle of ww
    "G1a",  # a read of what was rolled back
    "G1b",  # a read of a part of what a transaction appended to a key
    "G1c",  # a circle of ww and wr
    "lost update",  # an append that was committed is not there, or was made without the one that it followed
    "G-single",  # a circle with one rw: a read that is not of one moment
    "write skew",  # a circle with several rw (G2)
    "torn",  # of a transaction with an unknown end some appends are there and some are not
    "own write",  # a transaction did not see what it wrote itself
    "order",  # two reads of a key that no order of appends explains
)


@dataclasses.dataclass
class Append:
    """A value was added at the end of a key's list."""

    key: object
    value: int
    undone: bool = False  # by ROLLBACK TO SAVEPOINT


@dataclasses.dataclass
class Read:
    """A key's list was read."""

    key: object
    values: list
    binds: bool = False


@dataclasses.dataclass
class Transaction:
    """What one transaction did, in order, and how it ended."""

    name: object
    status: str
    steps: list


@dataclasses.dataclass
class Finding:
    """An anomaly."""

    kind: str
    text: str


def judge(history, final):
    """All anomalies of a history whose keys hold the lists `final` at its end."""
    return Judge(history, final).findings()


class Judge:
    """One history under judgement."""

    def __init__(self, history, final):
        self.history = history
        self.final = final
        self.found = []
        self.writer = {}  # value -> transaction
        self.undone = set()
        for transaction in history:
            for step in transaction.steps:
                if isinstance(step, Append):
                    self.writer[step.value] = transaction
                    if step.undone:
                        self.undone.add(step.value)
        self.present = {value for values in final.values() for value in values}

    def findings(self):
        """Looks for everything, simple things first."""
        self.settle_unknown()
        self.check_final_lists()
        for transaction in self.history:
            if transaction.status == COMMITTED:
                self.check_reads(transaction)
        if not any(finding.kind in ("order", "G1a") for finding in self.found):
            self.check_circles()
        return self.found

    def add(self, kind, text):
        self.found.append(Finding(kind, text))

    def appended(self, transaction, key=None):
        """What a transaction appended and did not take back."""
        steps = (s for s in transaction.steps if isinstance(s, Append) and not s.undone)
        return [s.value for s in steps if key is None or s.key == key]

    def settle_unknown(self):
        """A transaction whose COMMIT had no answer is what the final lists say."""
        for transaction in self.history:
            if transaction.status != UNKNOWN:
                continue
            values = self.appended(transaction)
            there = [value for value in values if value in self.present]
            transaction.status = COMMITTED if there else ABORTED
            if there and len(there) < len(values):
                self.add("torn", f"{transaction.name}: of {values} only {there} are there")

    def check_final_lists(self):
        for key, values in self.final.items():
            if len(set(values)) < len(values):
                self.add("order", f"key {key} has a value twice: {values}")
            for value in values:
                self.check_is_committed(value, f"the final list of key {key}")
        for transaction in self.history:
            if transaction.status != COMMITTED:
                continue
            for step in transaction.steps:
                if isinstance(step, Append) and not step.undone and step.value not in self.final.get(step.key, ()):
                    self.add("lost update", f"{transaction.name}: {step.value} is not in key {step.key}")

    def check_is_committed(self, value, where):
        writer = self.writer.get(value)
        if writer is None:
            self.add("order", f"{where} has {value}, which nobody appended")
        elif not self.is_committed(value):
            self.add("G1a", f"{where} has {value}, which {writer.name} rolled back")

    def check_reads(self, transaction):
        own = collections.defaultdict(list)
        for step in transaction.steps:
            if isinstance(step, Append):
                if not step.undone:
                    own[step.key].append(step.value)
                continue
            where = f"{transaction.name}: read of key {step.key}"
            self.check_read(transaction, step, own[step.key], where)

    def check_read(self, transaction, read, own, where):
        if own and read.values[-len(own):] != own:
            self.add("own write", f"{where}: {read.values} does not end with {own}")
        of_others = [value for value in read.values if self.writer.get(value) is not transaction]
        for value in of_others:
            self.check_is_committed(value, where)
        if not all(self.is_committed(value) for value in of_others):
            return
        order = self.final.get(read.key, [])
        if read.values != order[: len(read.values)]:
            self.add("order", f"{where}: {read.values} is not how {order} begins")
        self.check_parts(transaction, read, of_others, where)

    def is_committed(self, value):
        writer = self.writer.get(value)
        return writer is not None and writer.status == COMMITTED and value not in self.undone

    def check_parts(self, transaction, read, of_others, where):
        for writer in {id(self.writer[v]): self.writer[v] for v in of_others if v in self.writer}.values():
            all_of_it = self.appended(writer, read.key)
            seen = [value for value in all_of_it if value in of_others]
            if writer is not transaction and len(seen) < len(all_of_it):
                self.add("G1b", f"{where}: {seen} of {all_of_it}, which {writer.name} appended")

    # -- Circles ---------------------------------------------------------------------------------------------------

    def check_circles(self):
        edges = self.edges()
        for names in strong_components(edges):
            inside = {e: kinds for e, kinds in edges.items() if e[0] in names and e[1] in names}
            kind, circle = classify(inside)
            self.add(kind, " -> ".join(str(name) for name in circle))

    def edges(self):
        """(from, to) -> kinds of dependency, of committed transactions by their names."""
        edges = collections.defaultdict(set)

        def add(one, other, kind):
            if one is not other:
                edges[one.name, other.name].add(kind)

        for values in self.final.values():
            for one, other in zip(values, values[1:]):
                if one in self.writer and other in self.writer:
                    add(self.writer[one], self.writer[other], "ww")
        for transaction in self.history:
            if transaction.status == COMMITTED:
                for step in transaction.steps:
                    if isinstance(step, Read):
                        self.add_read_edges(transaction, step, add)
        return edges

    def add_read_edges(self, transaction, read, add):
        of_others = [v for v in read.values if self.writer.get(v) not in (None, transaction)]
        if of_others:
            add(self.writer[of_others[-1]], transaction, "wr")
        order = self.final.get(read.key, [])
        if read.binds and len(read.values) < len(order):
            follower = self.writer.get(order[len(read.values)])
            if follower is not None:
                add(transaction, follower, "rw")


def successors(edges, kinds):
    of = collections.defaultdict(set)
    for (one, other), has in edges.items():
        if has & kinds:
            of[one].add(other)
    return of


def strong_components(edges):
    """Sets of names that reach each other, by Tarjan's algorithm without recursion."""
    follow = successors(edges, {"ww", "wr", "rw"})
    index, low, on_stack, stack, result = {}, {}, set(), [], []
    for root in list(follow):
        if root in index:
            continue
        work = [(root, iter(follow[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(follow.get(other, ()))))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                        if member == name:
                            break
                    if len(component) > 1:
                        result.append(component)
    return result


def path(follow, start, end):
    """A shortest way along `follow`."""
    came = {start: None}
    queue = collections.deque([start])
    while queue:
        name = queue.popleft()
        for other in follow.get(name, ()):
            if other == end:
                way = [end, name]
                while came[way[-1]] is not None:
                    way.append(came[way[-1]])
                return way[::-1]
            if other not in came:
                came[other] = name
                queue.append(other)
    return None


def classify(edges):
    """The gravest kind of circle in a strong component, and one such circle."""
    for kind, kinds in (("G0", {"ww"}), ("G1c", {"ww", "wr"})):
        follow = successors(edges, kinds)
        for name in list(follow):
            circle = path(follow, name, name)
            if circle:
                return kind, circle
    follow = successors(edges, {"ww", "wr"})
    for (one, other), kinds in edges.items():
        if "rw" in kinds:
            way = path(follow, other, one)
            if way:
                # The reader appended behind what it had not seen: it wrote over it, had it written a register.
                is_lost = len(way) == 2 and "ww" in edges.get((other, one), ())
                return ("lost update" if is_lost else "G-single"), [one, *way]
    follow = successors(edges, {"ww", "wr", "rw"})
    for name in list(follow):
        circle = path(follow, name, name)
        if circle:
            return "write skew", circle
    return "write skew", sorted({str(name) for edge in edges for name in edge})
