"""Plans in a file: what `silt plan --output json` wrote, for `silt compact --plan`."""

import json
from pathlib import Path
from typing import Any

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.retention import RETENTION, RetentionPlan
from siltstone.errors import ConfigError, UsageError


def read_plans(path: Path) -> tuple[list[CleaningPlan], list[RetentionPlan]]:
    """Read plans, either in the verdicts of `silt plan` or by themselves."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError("--plan", path, f"cannot be read ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}: line {error.lineno} column {error.colno}: {error.msg}"
        ) from error
    except ValueError as error:  # not even text
        raise UsageError(f"{path}: {error}") from error
    cleaning: list[CleaningPlan] = []
    retention: list[RetentionPlan] = []
    for item in document if isinstance(document, list) else [document]:
        for fields in _plans_in(path, item):
            if fields.get("kind") == RETENTION:
                retention.append(RetentionPlan.from_json(json.dumps(fields)))
            else:
                cleaning.append(CleaningPlan.from_json(json.dumps(fields)))
    return cleaning, retention


def _plans_in(path: Path, item: Any) -> list[dict[str, Any]]:
    if not isinstance(item, dict):
        raise UsageError(f"{path}: {item!r} is no plan: write it with silt plan --output json")
    if "plan" not in item:
        return [item]
    return [plan for plan in (item["plan"], item.get("retention_plan")) if plan is not None]
