"""Write docs/configuration.md from the settings as they are declared.

Run it after a setting was added or changed: `python scripts/make_config_docs.py`.
"""

from pathlib import Path
from typing import Final

from siltstone.broker.config import IGNORED_FOR, NOT_SERVED, BrokerConfig
from siltstone.cleaner.config import CleanerConfig
from siltstone.log.config import LogConfig
from siltstone.settings import markdown_table, settings_of

TARGET: Final = Path(__file__).parent.parent / "docs" / "configuration.md"

_INTRODUCTION: Final = """\
# Configuration

<!-- Made by scripts/make_config_docs.py from the settings themselves: do not edit. -->

Names, types, bounds and defaults are those of Apache Kafka 4.3.1, where the table does not say
otherwise. A setting that Kafka does not have begins with `silt.`.

An unknown name, a value of the wrong type or one out of bounds is refused at once, with the nearest
known name or the allowed range.

## Topic settings

A topic's own value comes first, then the broker's (the setting in the fifth column, the first that
is set), then the default. Several settings are checked together:

- `min.compaction.lag.ms` must not exceed `max.compaction.lag.ms`.
- `remote.storage.enable=true` excludes `cleanup.policy=compact`. It also holds
  `local.retention.ms` and `local.retention.bytes` to at most the total, and to exactly the total
  with `remote.log.copy.disable=true`.

9223372036854775807 is the largest long, and means "never" or "no limit".

"""

_CLEANER: Final = """
## Settings of the cleaner

They hold for all logs together: `silt compact --config NAME=VALUE`.

"""


_BROKER_INTRODUCTION: Final = """
## Broker settings

For `silt serve`, in its `--config` file or with `--set`; the broker settings of the table above are
taken as well. Some change without a restart, as in Kafka: the topic defaults, and
`log.cleaner.backoff.ms`, `log.cleaner.io.max.bytes.per.second`, `log.cleaner.threads` and
`max.connections`.

"""


_WITHOUT_EFFECT: Final = """
## Taken, and without effect

Settings of Kafka's that have nothing to act on here: a `server.properties` can stay as it is.

"""

_NOT_SERVED: Final = """
## Refused by name

Whoever sets these counts on something that is not here:

"""


def _without_effect() -> str:
    return "".join(
        f"- {', '.join(f'`{name}`' for name in names)}: {reason}.\n"
        for reason, names in IGNORED_FOR.items()
    )


def _not_served() -> str:
    return "".join(f"- `{prefix}*`: {reason}.\n" for prefix, reason in NOT_SERVED.items())


def render() -> str:
    """Return the whole page."""
    return (
        _INTRODUCTION
        + markdown_table(LogConfig.settings())
        + _CLEANER
        + markdown_table(settings_of(CleanerConfig).values())
        + _BROKER_INTRODUCTION
        + markdown_table(settings_of(BrokerConfig).values())
        + _WITHOUT_EFFECT
        + _without_effect()
        + _NOT_SERVED
        + _not_served()
    )


def main() -> None:
    """Write the page."""
    TARGET.write_text(render(), encoding="utf-8")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
