"""Results as JUnit XML, for a CI that shows them; the properties are those of the plugin's own ``--junit-xml``."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from harness.matrix.result import SKIPPED, CellResult, count


def properties(result: CellResult) -> dict[str, str]:
    """What a test case says of its cell."""
    return {
        "cell": result.cell.token,
        "verdict": result.verdict,
        "order": result.order,
        "seconds": f"{result.seconds:.3f}",
        "expected": str(result.expectation),
        "standing": result.standing,
        "evidence": result.evidence,
        "replay": result.replay,
    }


def junit(results: Sequence[CellResult]) -> str:
    """One test suite with a test case per cell. A skip that no matrix foresaw is a skip here all the same."""
    counts = count(results)
    suite = ElementTree.Element(
        "testsuite",
        name="harness",
        tests=str(len(results)),
        failures=str(counts["unexpected"]),
        errors="0",
        skipped=str(counts["skipped"] + counts["unforeseen"]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=result.cell.scenario, name=result.cell.id, time=f"{result.seconds:.3f}"
        )
        listed = ElementTree.SubElement(case, "properties")
        for name, value in properties(result).items():
            ElementTree.SubElement(listed, "property", name=name, value=_printable(value))
        if result.verdict == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=_printable(result.reason))
        elif result.standing == "unexpected":
            message = f"{result.verdict}, order {result.order}; expected: {result.expectation}"
            ElementTree.SubElement(case, "failure", message=message).text = _printable(result.reason)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Without the control characters that XML has no way to write."""
    return "".join(c if c in "\t\n" or c >= " " else f"#x{ord(c):02X}" for c in text)
