"""Makes collective-ordering failures of distributed training happen on purpose, proves them, and keeps them away.

The public API, in one place; everything else may change. Names are loaded on first use, so that ``import harness``
costs nothing and the model never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.errors import (
        DeadlockError as DeadlockError,
    )
    from harness.errors import (
        HarnessError as HarnessError,
    )
    from harness.errors import (
        MismatchError as MismatchError,
    )
    from harness.errors import (
        MissingRankError as MissingRankError,
    )
    from harness.errors import (
        RankDiedError as RankDiedError,
    )
    from harness.errors import (
        StoppedError as StoppedError,
    )
    from harness.errors import (
        UsageError as UsageError,
    )
    from harness.errors import (
        WrongValuesError as WrongValuesError,
    )
    from harness.model.certificate import Certificate as Certificate
    from harness.model.operation import Group as Group
    from harness.model.operation import Operation as Operation
    from harness.model.order import order_of as order_of
    from harness.model.outcomes import judge as judge
    from harness.model.outcomes import outcomes as outcomes
    from harness.model.program import Program as Program
    from harness.model.progress import Model as Model
    from harness.model.progress import Progress as Progress
    from harness.model.proof import proof as proof
    from harness.model.topology import Topology as Topology
    from harness.scenario import Scenario as Scenario
    from harness.suites import WorldUnderTest as WorldUnderTest
    from harness.suites import distributed as distributed
    from harness.world.world import World as World

_HOME = {
    "Certificate": "harness.model.certificate",
    "DeadlockError": "harness.errors",
    "Group": "harness.model.operation",
    "HarnessError": "harness.errors",
    "MismatchError": "harness.errors",
    "MissingRankError": "harness.errors",
    "Model": "harness.model.progress",
    "Operation": "harness.model.operation",
    "Program": "harness.model.program",
    "Progress": "harness.model.progress",
    "RankDiedError": "harness.errors",
    "Scenario": "harness.scenario",
    "StoppedError": "harness.errors",
    "Topology": "harness.model.topology",
    "UsageError": "harness.errors",
    "World": "harness.world.world",
    "WorldUnderTest": "harness.suites",
    "WrongValuesError": "harness.errors",
    "distributed": "harness.suites",
    "judge": "harness.model.outcomes",
    "order_of": "harness.model.order",
    "outcomes": "harness.model.outcomes",
    "proof": "harness.model.proof",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'harness' has no attribute {name!r}; the public names are {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
