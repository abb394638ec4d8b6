"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for topics and for the broker."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.config_entries import describe_broker_config, describe_topic_config
from siltstone.broker.error_codes import ProtocolError, code_of, describe
from siltstone.broker.handlers.create_topics import parse_config
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request
from siltstone.errors import ConfigError, UnknownSettingError
from siltstone.log.config import LogConfig
from siltstone.settings import settings_of

TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


def handle_describe(broker: Broker, request: Request) -> Values:
    """Describe the settings of topics and of this broker, with where each value comes from."""
    body = request.body
    results = []
    for resource in body.resources:
        result: dict[str, Any] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": (),
        }
        try:
            entries = _describe(broker, resource)
            wanted = resource.configuration_keys
            if wanted is not None:
                entries = [entry for entry in entries if entry["name"] in wanted]
            for entry in entries:
                if not body.include_synonyms:
                    entry["synonyms"] = ()
                if not getattr(body, "include_documentation", False):
                    entry["documentation"] = None
            result["configs"] = entries
        except Exception as error:  # noqa: BLE001 - one resource must not stop the others
            result["error_code"] = code_of(error, f"settings of {resource.resource_name}")
            result["error_message"] = describe(error)
        results.append(result)
    return {"results": results}


def _describe(broker: Broker, resource: Any) -> list[dict[str, Any]]:
    if resource.resource_type == TOPIC:
        return describe_topic_config(broker, broker.manager.describe(resource.resource_name).config)
    _check_broker(broker, resource)
    return describe_broker_config(broker, resource.resource_name)


def _check_broker(broker: Broker, resource: Any) -> None:
    if resource.resource_type != BROKER:
        raise ProtocolError(
            ErrorCode.invalid_request, f"resource type {resource.resource_type} is not served"
        )
    if not broker.dynamic.is_level(resource.resource_name):
        raise ProtocolError(
            ErrorCode.invalid_request,
            f"this is broker {broker.node_id}, not {resource.resource_name}",
        )


async def handle_alter(broker: Broker, request: Request) -> Values:
    """Replace all settings of topics or of the broker."""
    return await _alter_all(broker, request, lambda resource, _: parse_config(resource.configs))


async def handle_incremental_alter(broker: Broker, request: Request) -> Values:
    """Set, reset, or change the lists of single settings."""
    return await _alter_all(broker, request, _apply_changes)


async def _alter_all(broker: Broker, request: Request, change: Any) -> Values:
    results = []
    for resource in request.body.resources:
        result: dict[str, Any] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            await _alter(broker, resource, change, validate_only=request.body.validate_only)
        except Exception as error:  # noqa: BLE001 - one resource must not stop the others
            result["error_code"] = code_of(error, f"settings of {resource.resource_name}")
            result["error_message"] = describe(error)
        results.append(result)
    return {"responses": results}


async def _alter(broker: Broker, resource: Any, change: Any, *, validate_only: bool) -> None:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        before = broker.manager.describe(name).config
        after = change(resource, before)
        LogConfig.parse({**broker.server_config.topic_defaults, **after})
        if not validate_only:
            resets = [key for key in before if key not in after]
            await broker.change(lambda: broker.manager.alter_topic(name, after, resets))
        return
    _check_broker(broker, resource)
    after = change(resource, broker.dynamic.level(name))
    broker.dynamic.check(name, after)
    if not validate_only:
        await broker.change(lambda: broker.apply_config(name, after))


def _apply_changes(resource: Any, before: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    seen: set[str] = set()
    for entry in resource.configs:
        if entry.name in seen:
            raise ProtocolError(ErrorCode.invalid_request, f"{entry.name} is named twice")
        seen.add(entry.name)
        if entry.config_operation == _DELETE:
            _check_known(resource, entry.name)
            after.pop(entry.name, None)
            continue
        if entry.value is None:
            raise ConfigError(entry.name, "null", "must have a value")
        if entry.config_operation == _SET:
            after[entry.name] = entry.value
        elif entry.config_operation in (_APPEND, _SUBTRACT):
            after[entry.name] = _change_list(resource, entry, before)
        else:
            raise ProtocolError(
                ErrorCode.invalid_request, f"{entry.config_operation} is no operation"
            )
    return after


def _check_known(resource: Any, name: str) -> None:
    known = settings_of(LogConfig)
    if resource.resource_type == TOPIC and name not in known:
        raise UnknownSettingError(name, known)


def _change_list(resource: Any, entry: Any, before: Mapping[str, str]) -> str:
    declared = settings_of(LogConfig).get(entry.name)
    if resource.resource_type != TOPIC or declared is None or declared.kind.name != "list":
        raise ConfigError(entry.name, entry.value, "is no list")
    current = before.get(entry.name, declared.format(declared.default))
    return ",".join(
        _added(_words(current), _words(entry.value))
        if entry.config_operation == _APPEND
        else _taken(_words(current), _words(entry.value))
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _added(words: list[str], more: Iterable[str]) -> list[str]:
    return [*words, *(word for word in more if word not in words)]


def _taken(words: list[str], fewer: Iterable[str]) -> list[str]:
    gone = set(fewer)
    return [word for word in words if word not in gone]
