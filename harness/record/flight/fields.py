"""What is read of each entry, in the order of a table's columns."""

from __future__ import annotations

FIELDS = (
    "record_id",
    "collective_seq_id",
    "p2p_seq_id",
    "pg_id",
    "profiling_name",
    "state",
    "retired",
    "is_p2p",
    "process_group",  # (name, description): this column is the name
    "description",
    "input_sizes",  # elements of all tensors together
    "output_sizes",
    "input_dtypes",  # of the first tensor
    "output_dtypes",
)
RECORD, SEQ, P2P_SEQ, PG_ID, NAME, STATE, RETIRED, IS_P2P, GROUP, DESC, IN_N, OUT_N, IN_TYPE, OUT_TYPE = range(14)
ABSENT = -1
