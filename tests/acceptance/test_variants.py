"""With and without a fix on the DeepSpeed that is installed: what each variant gathers in which order, and refusals."""

import contextlib
from collections.abc import Iterator

import pytest

from harness.errors import UsageError, VariantError
from harness.model.topology import topology
from harness.record.verdict import histories, verdict
from harness.scenario import perform, scenario
from harness.variants import VARIANTS, fix
from harness.world import pool

SUBJECT = "deepspeed_zero3_group_order"


def run(size, backend, arrival, variant, params=(), groups="mirror"):
    """One cell: its verdict, what the ranks returned, and the labels of each rank's gathers in order."""
    subject = scenario(SUBJECT)
    lines = []
    world = pool.get(size, backend, preload=subject.preload)
    done = world.run(perform, subject, topology(groups, size), arrival, variant, dict(params), sink=lines.append)
    gathers = {
        rank: [op.label for call in threads["main"] for op in call if op.kind == "all_gather"]
        for rank, threads in histories(lines).items()
    }
    return verdict(lines), [rank.value for rank in done.ranks], gathers


def by_group(labels):
    """Which group each gather of the first round is for, where slots alternate between two groups."""
    return [int(label.split()[1].split(",")[0]) % 2 for label in labels[: len(labels) // 2]]


def test_the_fix_orders_groups_and_without_it_the_arrival_does():
    one_dtype = {"dtypes": "float32"}
    _, _, fixed = run(2, "gloo", "split", "with_fix", one_dtype)
    assert [by_group(fixed[rank]) for rank in (0, 1)] == [[0, 1], [0, 1]]
    _, _, broken = run(2, "gloo", "split", "without_fix", one_dtype)
    assert [by_group(broken[rank]) for rank in (0, 1)] == [[1, 0], [0, 1]]


def test_the_control_of_one_group_is_the_same_in_every_variant():
    seen = [run(2, "gloo", "reversed", variant, groups="single") for variant in VARIANTS]
    assert all(found.verdict == "completes" and found.order == "consistent" for found, _, _ in seen)
    assert seen[0][1:] == seen[1][1:] == seen[2][1:]


def test_values_are_the_same_in_every_variant():
    values = [run(4, "gloo", "split", variant, groups="dp_edp")[1] for variant in VARIANTS]
    assert values[0] == values[1] == values[2]
    assert None not in values[0]


def test_a_wrong_value_is_a_verdict():
    subject = scenario(SUBJECT)
    lines = []
    pool.get(2, "gloo", preload=subject.preload).run(_spoilt, subject, topology("mirror", 2), sink=lines.append)
    assert verdict(lines).verdict == "wrong_values"


def _spoilt(subject, groups):
    """In a rank: what rank 1 puts into its partition is off by one bit."""
    import torch
    from deepspeed.runtime.zero.partition_parameters import Init

    original = Init._partition_param

    def partition(self, param, *args, **kwargs):
        original(self, param, *args, **kwargs)
        if param.ds_id == 1 and param.ds_zero_partition_rank == 1:
            param.ds_tensor.view(-1).view(torch.int32)[0] ^= 1

    Init._partition_param = partition
    try:
        return perform(subject, groups, "same", "installed", {"dtypes": "float32", "rounds": 1})
    finally:
        Init._partition_param = original


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("MultipleAllGatherHandles", "looked for MultipleAllGatherHandles in deepspeed.runtime.zero"),
        ("Init.get_partition_dp_group", "looked for the method Init.get_partition_dp_group"),
        ("Init._convert_to_deepspeed_param", "looked for the method Init._convert_to_deepspeed_param"),
    ],
)
def test_a_release_whose_internals_moved_is_refused_by_name(missing, message):
    done = pool.get(1, "gloo").run(_refusal, missing)
    assert message in done.ranks[0].value
    assert done.ranks[0].value.startswith("DeepSpeed 0.")


def test_a_release_without_partition_groups_of_parameters_is_refused():
    done = pool.get(1, "gloo").run(_refusal_before_0_19_3)
    assert "looked for 'ds_zero_partition_process_group'" in done.ranks[0].value


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    from deepspeed.runtime.zero import partition_parameters

    holder, _, attribute = ("", "", name) if "." not in name else name.partition(".")
    owner = getattr(partition_parameters, holder) if holder else partition_parameters
    value = owner.__dict__[attribute]
    delattr(owner, attribute)
    try:
        yield
    finally:
        setattr(owner, attribute, value)


def _refusal(missing: str) -> str:
    """In a rank: what `with_fix` says where something is missing; as it is, the release runs all the same."""
    with _hidden(missing):
        with fix("zero3_group_order").variant("installed").apply():
            pass
        try:
            with fix("zero3_group_order").variant("with_fix").apply():
                return "it was not refused"
        except VariantError as error:
            return str(error)


def _refusal_before_0_19_3() -> str:
    from deepspeed.runtime.zero.partition_parameters import Init

    original = Init._convert_to_deepspeed_param
    Init._convert_to_deepspeed_param = lambda self, param: None
    try:
        with fix("zero3_group_order").variant("without_fix").apply():
            return "it was not refused"
    except VariantError as error:
        return str(error)
    finally:
        Init._convert_to_deepspeed_param = original


def test_a_variant_leaves_nothing_behind():
    assert pool.get(1, "gloo").run(_left_behind).ranks[0].value == []


def _left_behind() -> list[str]:
    from deepspeed.moe import utils
    from deepspeed.runtime.zero import partition_parameters

    def looked_at():
        return {
            "convert": partition_parameters.Init._convert_to_deepspeed_param,
            "gather": partition_parameters._dist_allgather_fn,
            "split": utils.split_params_into_different_moe_groups_for_optimizer,
        }

    before = looked_at()
    for name in ("zero3_group_order", "moe_group_names"):
        for variant in VARIANTS:
            with fix(name).variant(variant).apply():
                pass
    return [key for key, value in looked_at().items() if value is not before[key]]


def test_unknown_fixes_and_variants_list_the_known_ones():
    with pytest.raises(UsageError, match="accepted: moe_group_names, zero3_group_order"):
        fix("zero4")
    with pytest.raises(UsageError, match="accepted: installed, with_fix, without_fix"):
        fix("moe_group_names").variant("fixed")
