"""Settings as DescribeConfigs shows them: with type, source, synonyms and documentation."""

from collections.abc import Mapping
from typing import Any, Final

from siltstone.broker.broker import Broker
from siltstone.broker.config import BrokerConfig, to_topic_unit
from siltstone.broker.dynamic_config import ALL_BROKERS, is_dynamic
from siltstone.log.config import LogConfig
from siltstone.settings import Setting, format_settings, settings_of

# Kafka's numbers.
DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_ALL_BROKERS: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5

_TYPES: Final[Mapping[str, int]] = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "long": 5,
    "double": 6,
    "list": 7,
}


def describe_topic_config(broker: Broker, config: Mapping[str, str]) -> list[dict[str, Any]]:
    """Describe all settings of a topic that overrides some."""
    return [_topic_entry(broker, declared, config) for declared in LogConfig.settings()]


def describe_broker_config(broker: Broker, level: str) -> list[dict[str, Any]]:
    """Describe the settings of this broker; of the level for all, only what was changed there."""
    if level == ALL_BROKERS:
        return [
            _broker_entry(broker, name, value, DYNAMIC_ALL_BROKERS)
            for name, value in sorted(broker.dynamic.level(ALL_BROKERS).items())
        ]
    entries = []
    own = format_settings(broker.server_config.broker)
    for name, value in own.items():
        entries.append(_broker_entry(broker, name, value, _source(broker, name)))
    shown = format_settings(LogConfig.parse(broker.server_config.topic_defaults))
    for declared in LogConfig.settings():
        for synonym in declared.synonyms[:1]:
            if synonym not in own:
                entries.append(
                    _broker_entry(broker, synonym, shown[declared.name], _source(broker, synonym))
                )
    return entries


def _topic_entry(
    broker: Broker, declared: Setting[Any], config: Mapping[str, str]
) -> dict[str, Any]:
    synonyms = []
    if declared.name in config:
        synonyms.append(_synonym(declared.name, config[declared.name], DYNAMIC_TOPIC))
    for name in declared.synonyms:
        for source, level in _levels(broker):
            if name in level:
                synonyms.append(_synonym(name, to_topic_unit(name, level[name]), source))
    name = declared.synonyms[0] if declared.synonyms else declared.name
    synonyms.append(_synonym(name, declared.format(declared.default), DEFAULT))
    return {
        "name": declared.name,
        "value": synonyms[0]["value"],
        "read_only": False,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _TYPES[declared.kind.name],
        "documentation": declared.doc,
    }


def _broker_entry(broker: Broker, name: str, value: str, source: int) -> dict[str, Any]:
    declared = settings_of(BrokerConfig).get(name)
    if declared is None:
        declared = next(d for d in LogConfig.settings() if name in d.synonyms)
    synonyms = [
        _synonym(name, level[name], where) for where, level in _levels(broker) if name in level
    ]
    synonyms.append(_synonym(name, declared.format(declared.default), DEFAULT))
    return {
        "name": name,
        "value": value,
        "read_only": not is_dynamic(name),
        "config_source": source,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _TYPES[declared.kind.name],
        "documentation": declared.doc,
    }


def _levels(broker: Broker) -> list[tuple[int, Mapping[str, str]]]:
    return [
        (DYNAMIC_BROKER, broker.dynamic.level(str(broker.node_id))),
        (DYNAMIC_ALL_BROKERS, broker.dynamic.level(ALL_BROKERS)),
        (STATIC_BROKER, broker.dynamic.static),
    ]


def _source(broker: Broker, name: str) -> int:
    return next((source for source, level in _levels(broker) if name in level), DEFAULT)


def _synonym(name: str, value: str, source: int) -> dict[str, Any]:
    return {"name": name, "value": value, "source": source}
