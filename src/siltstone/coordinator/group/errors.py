"""Why a group refuses."""

from siltstone.coordinator.errors import CodedError


class GroupError(CodedError):
    """A request that its group does not take."""
