"""Random small programs, as texts, made so that every outcome comes up often.

A program begins as one story that all ranks follow, so that it would complete; then a few ranks are led astray:
statements swapped, dropped, doubled or changed, calls made asynchronous, waits left out, calls dealt to threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import factorial, prod
from random import Random

SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass
class Line:
    """A statement before it is dealt to a thread; ``batch`` lines beside each other go into one batch."""

    text: str
    handle: bool = False  # may be asynchronous
    creates: tuple[str, tuple[int, ...]] | None = None
    uses: tuple[str, tuple[int, ...]] | None = None  # the group, and the ranks that must be its members
    p2p: bool = False


#: Drafts with more states than about this are drawn again, so that one program takes the explorer milliseconds.
STATES = 3000


def program(seed: int) -> str:
    """The program file of this seed: 2 to 4 ranks, up to about a dozen operations, 1 to 3 threads a rank."""
    rng = Random(seed)
    while True:
        draft = _Draft(rng)
        text = draft.text()
        if draft.states <= STATES:
            return text


class _Draft:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = rng.choice((2, 2, 2, 2, 3, 3, 3, 4))
        self.groups = {}
        for name in ("A", "B", "C")[: rng.choice((1, 1, 2, 2, 2, 3))]:
            size = rng.choice((1, 2, 2, 2, 2, 2, 2, self.world, self.world, self.world))
            self.groups[name] = tuple(sorted(rng.sample(range(self.world), size)))
        self.created: list[str] = []
        self.known = dict(self.groups)
        self.states = 1
        self.lines: list[list[Line]] = [[] for _ in range(self.world)]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def text(self) -> str:
        self.tidy = self.chance(0.3)
        for _ in range(self.rng.choice((1, 2, 2, 3, 3, 3, 4))):
            self._event()
        for _ in range(self.rng.choice((0, 1, 1, 2, 3))):
            self._astray(self.rng.randrange(self.world))
        head = [f"program: 1\nname: random\nabout: drawn by chance\nworld: {self.world}\ngroups:"]
        head += [f"  {name}: {list(ranks)}" for name, ranks in self.groups.items()]
        body = [line for rank in range(self.world) for line in self._rank(rank)]
        return "\n".join([*head, "ranks:", *body]) + "\n"

    def _event(self) -> None:
        kind = self.rng.choices(("collective", "p2p", "new", "destroy", "message", "sync"), (50, 24, 5, 5, 11, 5))[0]
        if kind == "new":
            name = self.rng.choice(("N", "N", "M"))
            size = self.rng.choice((2, self.world))
            ranks = tuple(sorted(self.rng.sample(range(self.world), size)))
            self.known[name] = ranks
            for lines in self.lines:
                lines.append(self._creation(name, ranks))
        elif kind == "message":
            source, target = self.rng.randrange(self.world), self.rng.randrange(self.world)
            self.lines[source].append(Line(f"tell {target}"))
            self.lines[target].append(Line(f"hear {source}"))
        elif kind == "sync":
            self.lines[self.rng.randrange(self.world)].append(Line("device_sync"))
        else:
            name = self.rng.choice(sorted(self.known))
            if kind == "p2p":
                self._p2p(name)
            elif kind == "destroy":
                for rank in self.known[name]:
                    self.lines[rank].append(Line(f"destroy_group {name}", uses=(name, (rank,))))
            else:
                self._collective(name)

    def _creation(self, name: str, ranks: tuple[int, ...]) -> Line:
        return Line(f"new_group {name}=[{','.join(map(str, ranks))}]", creates=(name, ranks))

    def _collective(self, name: str) -> None:
        word = self.rng.choice((*SYMMETRIC, "all_reduce", "all_reduce", self.rng.choice(ROOTED)))
        root = self.rng.choice(self.known[name]) if word in ROOTED else None
        keys = self._keys()
        for rank in self.known[name]:
            self._part(rank, word, name, root, keys)

    def _part(self, rank: int, word: str, name: str, root: int | None, keys: str) -> None:
        if self.chance(0.02):
            keys = self._keys(odd=True)
        if self.chance(0.02):
            word, root = self.rng.choice(SYMMETRIC), None
        if root is not None and self.chance(0.05):
            root = self.rng.choice(self.known[name])
        text = f"{word} {name}" + ("" if root is None else f" root={root}") + keys
        needs = (rank,) if root is None else (rank, root)
        self.lines[rank].append(Line(text, handle=True, uses=(name, needs)))

    def _keys(self, odd: bool = False) -> str:
        keys = ""
        if odd or self.chance(0.15):
            keys += self.rng.choice((" n=4", " n=8", " dtype=float32", " dtype=int64"))
        if odd or self.chance(0.2):
            keys += f" label={self.rng.choice('xyz')}"
        return keys

    def _p2p(self, name: str) -> None:
        members = self.known[name]
        source, target = self.rng.choice(members), self.rng.choice(members)
        if source == target and self.chance(0.8):
            return self._collective(name)
        tag = self.rng.choice(("", "", "", " tag=1", " tag=0"))
        keys = self._keys()
        turn = [(source, f"send {name} to={target}"), (target, f"recv {name} from={source}")]
        if self.chance(0.5):  # both directions, as neighbours exchange
            turn += [(target, f"send {name} to={source}"), (source, f"recv {name} from={target}")]
            if self.chance(0.5):
                turn[2:] = turn[:1:-1]
        for rank, text in turn:
            mine = self._keys(odd=True) if self.chance(0.03) else keys
            self.lines[rank].append(Line(text + tag + mine, True, uses=(name, (source, target)), p2p=True))
        return None

    def _astray(self, rank: int) -> None:
        lines = self.lines[rank]
        if not lines:
            return
        at = self.rng.randrange(len(lines))
        how = self.rng.choices(("reverse", "swap", "drop", "stop", "double", "change"), (25, 35, 12, 12, 6, 10))[0]
        if how == "reverse":
            lines.reverse()
        elif how == "stop":
            del lines[at:]
        elif how == "swap":
            other = self.rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif how == "drop":
            del lines[at]
        elif how == "double":
            lines.insert(at, lines[at])
        elif lines[at].creates:
            name, _ = lines[at].creates or ("", ())
            lines[at] = self._creation(name, tuple(range(self.world)) if self.chance(0.5) else (rank,))
        elif lines[at].handle and not lines[at].p2p:
            extra = self.rng.choice((" n=5", " label=w", " label=w"))
            if extra[:3] not in lines[at].text:
                lines[at] = replace(lines[at], text=lines[at].text + extra)

    def _rank(self, rank: int) -> list[str]:
        threads = self.rng.choice((1, 1, 1, 1, 1, 2, 2, 3)) if len(self.lines[rank]) > 1 else 1
        dealt: list[list[Line]] = [[] for _ in range(threads)]
        groups = dict(self.groups)
        for line in self.lines[rank]:
            if line.creates:
                groups[line.creates[0]] = line.creates[1]
            if line.uses:
                name, needs = line.uses
                if not set(needs) <= set(groups.get(name, ())):
                    continue
            # A created group stays in the thread that created it, so that its name means one thing.
            pinned = line.creates or (line.uses and line.uses[0] not in self.groups)
            dealt[0 if pinned else self.rng.randrange(threads)].append(line)
        sizes = [len(lines) for lines in dealt]
        self.states *= prod(size + 1 for size in sizes) * factorial(sum(sizes)) // prod(map(factorial, sizes))
        if threads == 1:
            return [f"  {rank}:", *(f"    - {s}" for s in self._thread(dealt[0]))] if dealt[0] else [f"  {rank}: []"]
        rows = [f"  {rank}:"]
        for name, lines in zip(("main", "saver", "loader"), dealt, strict=False):
            statements = self._thread(lines)
            rows += [f"    {name}:" + ("" if statements else " []"), *(f"      - {s}" for s in statements)]
        return rows

    def _thread(self, lines: list[Line]) -> list[str]:
        """Statements of one thread: handles, waits and batches drawn."""
        eager = self.rng.choice((0.0, 0.5, 0.8))
        statements: list[str] = []
        waiting: list[str] = []
        batch: list[str] = []

        def close() -> None:
            if len(batch) > 1 or (batch and self.chance(0.5)):
                name = f"h{len(statements) % 3}" if self.chance(eager) else ""
                statements.append(f"{{batch: [{', '.join(batch)}]" + (f", as: {name}}}" if name else "}"))
                waiting.extend([name] if name else [])
            else:
                statements.extend(batch)
            batch.clear()

        for line in lines:
            if line.p2p and self.chance(0.4):
                batch.append(line.text)
                continue
            close()
            name = f"h{len(statements) % 3}"
            if line.handle and self.chance(eager):
                statements.append(f"{line.text} -> {name}")
                waiting.append(name)
            else:
                statements.append(line.text)
            if waiting and self.chance(0.25):
                statements.append(f"wait {waiting.pop(self.rng.randrange(len(waiting)))}")
        close()
        if self.tidy or self.chance(0.6):
            self.rng.shuffle(waiting)
            statements += [f"wait {name}" for name in waiting]
        elif self.chance(0.3):
            statements.append("device_sync")
        return statements
