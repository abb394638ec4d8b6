"""Key indexes of segments: of those that a pass has left, and of those that have none yet."""
