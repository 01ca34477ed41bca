"""What dumps say: against the model on random programs, and in the ways real dumps are incomplete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InputError
from harness.model.operation import LIFECYCLE, Operation
from harness.model.order import order_of
from harness.model.outcomes import outcomes
from harness.model.program import Call, DeviceSync, Program, Statement
from harness.record import lines
from harness.record.flight.export import export
from harness.record.flight.judge import Judgement, default_models, judge
from harness.record.flight.mesh import Mesh
from harness.record.flight.write import dump, entry, write
from tests.explorer.generate import program

WORLD = {"0": ("default_pg", [0, 1])}
PAIR = WORLD | {"1": ("mirror", [0, 1])}


def asynchronous(source: Program) -> Program | None:
    """The program as a dump would show it, every call asynchronous and a wait for all at the end; None if none could.

    A recorder knows neither roots nor tags nor labels, no creations and destructions, and barriers without a size.
    """
    ranks: dict[int, dict[str, tuple[Statement, ...]]] = {}
    for rank in range(source.world):
        threads = source.threads(rank)
        if len(threads) > 1:
            return None
        calls: list[Statement] = []
        for statement in next(iter(threads.values())):
            if not isinstance(statement, Call) or statement.ops[0].kind in LIFECYCLE:
                continue
            if any(op.peer == rank or op.tag for op in statement.ops) or len({op.group for op in statement.ops}) > 1:
                return None
            ops = tuple(_seen(op) for op in statement.ops)
            calls.append(Call(ops, "h", (None,) * len(ops), batch=len(ops) > 1))
        ranks[rank] = {"main": (*calls, DeviceSync()) if calls else ()}
    return Program(source.world, source.groups, ranks)


def _seen(op: Operation) -> Operation:
    sized = op.kind not in ("barrier", "all_to_all")
    root = op.group.ranks[0] if op.root is not None else None
    return Operation(op.kind, op.group, root, op.peer, 0, op.n if sized else 8, op.dtype if sized else "float32")


def evidence(source: Program) -> list[dict[str, Any]]:
    """The lines a run would have left that issued everything and completed nothing."""
    found: list[dict[str, Any]] = []
    for rank in range(source.world):
        seq = 0
        for statement in source.threads(rank)["main"]:
            if isinstance(statement, Call):
                ops = [lines.operation(op) for op in statement.ops]
                where = [["train.py", 10 + seq, "step"]]
                found.append({"type": "issue", "rank": rank, "seq": seq, "ops": ops, "where": where, "ns": seq})
                seq += len(ops)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("form", "count"), [("pickle", 600), ("json", 200)])
def test_as_the_model_says(form: Any, count: int, tmp_path: Path) -> None:
    compared = 0
    for seed in range(count):
        seen = asynchronous(Program.parse(program(seed)))
        if seen is None:
            continue
        folder = tmp_path / str(seed)
        export(evidence(seen), folder, world=seen.world, form=form)
        models = default_models(sends=True)
        found = judge(folder, models)
        assert found.order.verdict == order_of(seen.histories()).verdict, (seed, program(seed))
        assert (len(found.order.cycle) > 0) == (found.order.verdict == "cyclic")
        for model in models:
            assert found.models[model][0] == outcomes(seen, model), (seed, model, program(seed))
            certificate = found.models[model][1]
            assert (certificate is None) == (found.models[model][0] == {"completes"})
            assert certificate is None or (len(certificate.cycle) > 0) == (certificate.outcome == "deadlock")
        compared += 1
    assert compared > count / 3


def test_an_inverted_pair_among_thousands(tmp_path: Path) -> None:
    Mesh(4, 4, 120, inverted=(6, 60)).write(tmp_path)
    found = judge(tmp_path)
    assert found.order.verdict == "cyclic"
    assert {link.rank for link in found.order.cycle} >= {6}
    assert len(found.order.cycle) == 2
    assert found.incomplete == 0
    assert found.models["independent"] == ({"completes"}, None)
    outcome, certificate = found.models["lane"]
    assert outcome == {"deadlock"}
    assert certificate is not None
    assert 6 in {step.rank for step in certificate.cycle}
    assert all(step.where[0][0].startswith("/job/train/") for step in certificate.cycle)


def test_nothing_inverted(tmp_path: Path) -> None:
    Mesh(3, 3, 60).write(tmp_path)
    found = judge(tmp_path)
    assert found.order.verdict == "consistent"
    assert all(outcome == {"completes"} for outcome, _ in found.models.values())


def dumps(folder: Path, *ranks: list[dict[str, Any]], groups: Any = PAIR, status: Any = None) -> Judgement:
    for rank, entries in enumerate(ranks):
        content = dump(groups, entries) | ({"pg_status": status[rank]} if status else {})
        write(folder / f"trace{rank}", content)
    return judge(folder)


def call(record: int, group: str, seq: int, *, state: str = "completed", name: str = "all_reduce", n: int = 4) -> Any:
    desc = PAIR[group][0]
    return entry(
        record,
        (group, desc),
        f"nccl:{name}",
        collective_seq=seq,
        pg_id=int(group),
        inputs=[[n]],
        outputs=[[n]],
        state=state,
        frames=[("/x/torch/distributed/distributed_c10d.py", 1, "all_reduce"), ("train.py", 7 + record, "step")],
    )


def test_a_blocking_inversion_caught_hanging(tmp_path: Path) -> None:
    """Each rank shows one call only, since its host stands there."""
    found = dumps(tmp_path, [call(0, "0", 1, state="started")], [call(0, "1", 1, state="scheduled")])
    outcome, certificate = found.models["independent"]
    assert outcome == {"deadlock"}
    assert certificate is not None
    assert {(step.rank, step.how) for step in certificate.cycle} == {(0, "blocked"), (1, "blocked")}
    assert certificate.cycle[0].where[0] == ("train.py", 7, "step")


def test_a_rank_that_does_not_come(tmp_path: Path) -> None:
    found = dumps(tmp_path, [call(0, "0", 1), call(1, "0", 2, state="started")], [call(0, "0", 1)])
    outcome, certificate = found.models["independent"]
    assert outcome == {"missing"}
    assert certificate is not None
    (blocked,) = certificate.blocked
    assert blocked.rank == 0
    assert [absent.rank for absent in blocked.absent] == [1]
    assert "default_pg:0 #1" in blocked.absent[0].instead


def test_sizes_that_differ(tmp_path: Path) -> None:
    found = dumps(tmp_path, [call(0, "0", 1, n=4)], [call(0, "0", 1, n=6)])
    outcome, certificate = found.models["lane"]
    assert outcome == {"mismatch"}
    assert certificate is not None
    assert certificate.clashes[0].left == "all_reduce n=4 dtype=Float"
    assert certificate.clashes[0].right == "all_reduce n=6 dtype=Float"


def test_rings_that_lost_different_amounts(tmp_path: Path) -> None:
    """Rank 1 kept only the end; what it lost is no missing call, and what is left still aligns."""
    story = [("0", 1), ("1", 1), ("0", 2), ("1", 2), ("0", 3), ("1", 3)]
    whole = [call(record, group, seq) for record, (group, seq) in enumerate(story)]
    end = [call(4, "1", 3), call(5, "0", 3)]
    found = dumps(tmp_path, whole, end)
    assert found.order.verdict == "cyclic"
    assert all(str(link.first).endswith("#3") for link in found.order.cycle)
    assert found.models["independent"][0] == {"completes"}
    assert any("ring of rank 1" in sentence for sentence in found.assumed)


def test_a_lossy_ring_shows_no_first_use(tmp_path: Path) -> None:
    """The first call that is left on a group is not the first there was."""
    whole = [call(0, "0", 1), call(1, "1", 1), call(2, "1", 2), call(3, "0", 2)]
    found = dumps(tmp_path, whole, whole[2:])
    assert found.order.verdict == "consistent"
    assert found.models["first_use"][0] == {"completes"}


def test_a_ring_that_lost_a_whole_group(tmp_path: Path) -> None:
    """Whether the lost group's call was issued is known from the status, where there is one."""
    first, second = [call(0, "1", 1, state="started"), call(1, "0", 1)], [call(7, "0", 1)]
    for last, expected in ((1, "completes"), (0, "missing")):
        status = [{}, {"0": {"last_enqueued_collective": 1}, "1": {"last_enqueued_collective": last}}]
        folder = tmp_path / str(last)
        folder.mkdir()
        # The group's number is known from a rank that used it; rank 1's own ring has nothing of it.
        assert dumps(folder, first, second, status=status).models["independent"][0] == {expected}


def test_a_rank_without_a_dump(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", [0, 1, 2])}
    found = dumps(tmp_path, [call(0, "0", 1)], [call(0, "0", 1)], groups=groups)
    assert found.models["lane"][0] == {"completes"}
    assert any("no dump of rank 2" in sentence for sentence in found.assumed)


def transfers(*names: str, first: int = 0, state: str = "completed") -> list[Any]:
    sizes: dict[str, Any] = {"inputs": [[4]], "outputs": [[4]]}
    return [
        entry(first + at, ("0", "default_pg"), f"nccl:{name}", p2p_seq=first + at + 1, state=state, **sizes)
        for at, name in enumerate(names)
    ]


def test_transfers_of_a_lossy_ring_align_at_the_last_completed(tmp_path: Path) -> None:
    sends = [*transfers("send 0->1", "send 0->1", "send 0->1"), *transfers("send 0->1", first=3, state="scheduled")]
    receives = [*transfers("recv 1<-0", first=8), *transfers("recv 1<-0", first=9, state="scheduled")]
    found = dumps(tmp_path, sends, receives, groups=WORLD)
    assert found.models["independent"][0] == {"completes"}
    assert found.models["lane"][0] == {"completes"}


def test_a_batch_has_no_order_of_its_own(tmp_path: Path) -> None:
    def batch(first: str, second: str) -> list[Any]:
        both = [transfers(name)[0] for name in (first, second)]
        closing = entry(2, ("0", "default_pg"), "nccl:coalesced", p2p_seq=1, state="completed")
        calls = [one | {"record_id": at, "state": "scheduled"} for at, one in enumerate(both)]
        return [*calls, closing | {"is_p2p": True}]

    found = dumps(tmp_path, batch("recv 0<-1", "send 0->1"), batch("recv 1<-0", "send 1->0"), groups=WORLD)
    assert found.order.verdict == "consistent"
    assert found.operations == 4
    assert found.incomplete == 0
    assert found.models["independent"][0] == {"completes"}
    assert found.models["lane"][0] == {"deadlock"}


def test_gloo_names_no_ranks(tmp_path: Path) -> None:
    """gloo's groups are empty in its configuration; who used them is all there is to go by."""
    nameless = {"": ("", [])}

    def gloo(record: int, group: str) -> Any:
        base = call(record, group, 1, state="scheduled")
        return base | {"profiling_name": "gloo:all_reduce", "retired": True}

    found = dumps(tmp_path, [gloo(0, "0"), gloo(1, "1")], [gloo(0, "1"), gloo(1, "0")], groups=nameless)
    assert found.order.verdict == "cyclic"
    assert found.incomplete == 0
    assert any("names no ranks" in sentence for sentence in found.assumed)
    assert replace(found, assumed=()).models["lane"][0] == {"deadlock"}


def test_ranks_that_issued_nothing(tmp_path: Path) -> None:
    found = dumps(tmp_path, [], [])
    assert (found.ranks, found.operations, found.order.verdict) == ((0, 1), 0, "consistent")
    assert all(outcome == {"completes"} for outcome, _ in found.models.values())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"collective_seq_id": None}, "entry 0: its collective_seq_id is missing"),
        ({"profiling_name": "nccl:send 0->7", "p2p_seq_id": 1}, "beyond its group"),
        ({"profiling_name": "nccl:send 1->0", "p2p_seq_id": 1}, "no call of rank 0"),
    ],
)
def test_entries_that_contradict_themselves(change: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=match):
        dumps(tmp_path, [call(0, "0", 1) | change], [call(0, "0", 1)])


def test_numbers_far_apart(tmp_path: Path) -> None:
    """Sequence numbers that no counter reached cost no memory."""
    found = dumps(tmp_path, [call(0, "0", 1), call(1, "0", 2**61)], [call(0, "0", 1), call(1, "0", 2**61)])
    assert found.order.verdict == "consistent"
    assert found.models["lane"][0] == {"completes"}


def test_what_completed_elsewhere_was_issued(tmp_path: Path) -> None:
    """Dumps are taken one after the other: the earlier one lacks what the later one saw complete."""
    later = [call(0, "0", 1), call(1, "0", 2)]
    found = dumps(tmp_path, later, later[:1])
    assert found.models["lane"][0] == {"completes"}
    assert any("taken earlier" in sentence for sentence in found.assumed)
    unfinished = [call(0, "0", 1), call(1, "0", 2, state="started")]
    assert dumps(tmp_path, unfinished, later[:1]).models["lane"][0] == {"missing"}
    rooted = [call(0, "0", 1), call(1, "0", 2, name="broadcast")]
    assert dumps(tmp_path, rooted, later[:1]).models["lane"][0] == {"missing"}
