"""Make docs/benchmarks.md, and its plot, from the newest result of each subject.

Command: python benchmarks/report.py [--results DIR] [--output FILE]
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, RESULTS_PATH
from benchmarks.machine import REPO_PATH

SUBJECTS: Final = ("append", "read", "index", "recovery", "load", "clean")
_PROFILE_ROWS: Final = 8
_PLOT_LIMIT: Final = 4.0  # times the goal; longer bars are cut

_INTRODUCTION: Final = """\
# Benchmarks

Made by `benchmarks/report.py` from the newest `benchmarks/results/*.json` of each subject; every
single run is there. `make bench` measures all of them anew, `make bench NAME=append` one, and
`make bench NAME=clean ROWS="lz4;zstd"` the rows with these in their names.

Only ratios and the goals count: both sides are measured in turns, in one run of one command, on the
same bytes. Each side runs once without the clock first. A cell holds the median; a ratio is the
median over the rounds of *our speed / the reference's*, with the lowest and the highest beside it.
"""


def find_newest(results_path: Path) -> dict[str, dict[str, Any]]:
    """Return the newest result of each subject, by subject; names begin with the date."""
    newest: dict[str, dict[str, Any]] = {}
    for path in sorted(results_path.glob("????-??-??-*.json")):
        result = json.loads(path.read_text())
        newest[result["subject"]] = {**result, "file": path.name}
    order = {subject: number for number, subject in enumerate(SUBJECTS)}
    return dict(sorted(newest.items(), key=lambda item: order.get(item[0], len(order))))


def format_page(results: Mapping[str, Mapping[str, Any]], plot_name: str | None) -> str:
    """Write the whole page."""
    parts = [_INTRODUCTION]
    if plot_name is not None:
        parts.append(f"![How far each goal is reached; 1 is the goal]({plot_name})\n")
    parts.extend(_format_subject(result) for result in results.values())
    return "\n".join(parts)


def _format_subject(result: Mapping[str, Any]) -> str:
    title, _, rest = result["documentation"].partition("\n")
    lines = [f"## {title.rstrip('.')}", "", rest.strip(), "", *_format_circumstances(result), ""]
    lines += ["| | ours | reference | ratio | goal | |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_format_row(case) for case in result["cases"]]
    costs = result["notes"].get("costs")
    if costs:
        lines += ["", "What it costs the process, ours / Kafka's:", "", *_format_costs(costs)]
    lost = list(_explain_losses(result))
    if lost:
        lines += ["", "**Where we lose, and why.**", "", *lost]
    return "\n".join(lines) + "\n"


def _format_circumstances(result: Mapping[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    commit = result["commit"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    named = "unknown commit"
    if commit:
        named = f"commit {commit['id'][:12]}"
        named += " with changes in src" if commit["is_src_changed"] else ""
    load = result["load_average"]["before"][0]
    others = [
        f"{case['name']} ({case['commit']['id'][:12]})"
        for case in result["cases"]
        if commit and case.get("commit", commit) not in ({}, commit)
    ]
    yield (
        f"Measured {result['finished'][:10]} at {named}, {result['repetitions']} rounds "
        f"(`{result['file']}`): {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['memory_gib']} GiB, {machine['kernel']}, {machine['file_system']}; {versions}."
    )
    if result["is_quick"]:
        yield "**A smoke run: the numbers mean nothing.**"
    elif result["scale"] != 1:
        yield f"**Not at full size: scaled by {result['scale']:g}.**"
    if others:
        yield f"Rows measured at other commits: {'; '.join(others)}."
    if load > machine["cores"] / 4:
        yield f"**The machine was not quiet: load average {load:.1f} when it began.**"


def _format_row(case: Mapping[str, Any]) -> str:
    reference = case["reference"]
    ratio = goal = reached = ""
    if case["ratio"] is not None:
        ratio = f"**{case['ratio']:.2f}** ({case['min_ratio']:.2f} to {case['max_ratio']:.2f})"
    if case["goal_ratio"] is not None:
        goal = f">= {case['goal_ratio']:g}x"
    if case["goal_mb_per_second"] is not None:
        goal = f">= {case['goal_mb_per_second']:,.0f} MB/s"
    for name, limit in case.get("limits", {}).items():
        goal = f"{name} <= {limit:g} (is {case['details'][name]:.3g})"
    if case["is_reached"] is not None:
        reached = "reached" if case["is_reached"] else "**missed**"
    cells = [
        case["name"],
        _format_side(case, case["ours"]),
        "" if reference is None else f"{reference['side']}: {_format_side(case, reference)}",
        ratio,
        goal,
        reached,
    ]
    return f"| {' | '.join(cells)} |"


def _format_costs(costs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| | CPU seconds | resident MB | p50 ms | p99 ms |"
    yield "| --- | --- | --- | --- | --- |"
    for name, values in costs.items():
        cells = [
            _format_cost(values.get(cost), unit)
            for cost, unit in (
                ("cpu_seconds", 1),
                ("resident_bytes", MB),
                ("p50_ms", 1),
                ("p99_ms", 1),
            )
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def _format_cost(values: Mapping[str, Any] | None, unit: float) -> str:
    if values is None:
        return ""
    text = f"{values['silt'] / unit:.3g} / {values['kafka'] / unit:.3g}"
    if values["ratio"] is not None:
        text += f" = **{values['ratio']:.2f}**"
    if "goal_ratio" in values:
        reached = "reached" if values["is_reached"] else "**missed**"
        text += f"; goal {values['goal_ratio']:g}, {reached}"
    return text


def _format_side(case: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    median = summary["median_seconds"]
    spread = (summary["max_seconds"] - summary["min_seconds"]) / median
    parts = [f"{median:.3f} s ± {spread / 2:.0%}"]
    if summary["mb_per_second"] >= 10:
        parts.append(f"{summary['mb_per_second']:,.0f} MB/s")
        if summary["records_per_second"] is not None:
            parts.append(f"{summary['records_per_second']:,.0f} records/s")
    if summary["us_per_operation"] is not None:
        parts.append(f"{summary['us_per_operation']:,.1f} us a {case['operation_name']}")
    return ", ".join(parts)


def _explain_losses(result: Mapping[str, Any]) -> Iterator[str]:
    """Name each row below its goal or its reference, what it pays for, and what a profile says."""
    reasons: dict[str, list[str]] = {}
    for case in result["cases"]:
        is_slower = case["ratio"] is not None and case["ratio"] < 1
        if case["is_reached"] is False or (is_slower and case["costs"]):
            how_far = [f"{case['ratio']:.2f} of {case['reference']['side']}"] if is_slower else []
            if case["is_reached"] is False:
                how_far.append("below the goal")
            reasons.setdefault(case["costs"], []).append(f"{case['name']} ({', '.join(how_far)})")
    for costs, names in reasons.items():
        yield f"- {'; '.join(names)}. {costs}".rstrip()
    if not reasons:
        return
    for name, profile in result["notes"].items():
        if name.startswith("profile"):
            own = ", ".join(
                f"`{row['function']}` {row['own_share']:.0%}"
                for row in profile["functions"][:_PROFILE_ROWS]
            )
            yield f"- {name}: share of own time under cProfile: {own}."


def format_plot(results: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Draw one bar for each goal: how much of it is reached. None without goals."""
    bars = []
    for subject, result in results.items():
        for case in result["cases"]:
            if case["goal_ratio"] is not None and case["ratio"] is not None:
                bars.append((f"{subject}: {case['name']}", case["ratio"] / case["goal_ratio"]))
            elif case["goal_mb_per_second"] is not None:
                rate = case["ours"]["mb_per_second"]
                bars.append((f"{subject}: {case['name']}", rate / case["goal_mb_per_second"]))
            for name, limit in case.get("limits", {}).items():
                bars.append((f"{subject}: {case['name']}", limit / case["details"][name]))
    return _draw(bars) if bars else None


def _draw(bars: Sequence[tuple[str, float]]) -> str:
    row, left, width = 24, 300, 400
    height = row * len(bars) + 30
    goal_x = left + width / _PLOT_LIMIT
    shapes = []
    for number, (name, reached) in enumerate(bars):
        y = 20 + number * row
        length = min(reached, _PLOT_LIMIT) / _PLOT_LIMIT * width
        colour = "#2a7" if reached >= 1 else "#c52"
        shapes += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{row - 6}" fill="{colour}"/>',
            f'<text x="{left + length + 6:.1f}" y="{y + 13}">{reached:.2f}</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" '
            f'height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="100%" height="{height}" fill="white"/>',
            *shapes,
            f'<line x1="{goal_x}" y1="16" x2="{goal_x}" y2="{height - 10}" stroke="black"/>',
            f'<text x="{goal_x}" y="12" text-anchor="middle">goal</text>',
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS_PATH)
    parser.add_argument("--output", type=Path, default=REPO_PATH / "docs" / "benchmarks.md")
    given = parser.parse_args()
    results = find_newest(given.results)
    if not results:
        raise SystemExit(f"no results in {given.results}: make bench")
    plot = format_plot(results)
    plot_path: Path = given.output.with_suffix(".svg")
    if plot is not None:
        plot_path.write_text(plot)
    given.output.write_text(format_page(results, None if plot is None else plot_path.name))
    print(f"written to {given.output}")


if __name__ == "__main__":
    main()
