"""Models that answer prompts: one small interface, and the providers behind it. See `docs/models.md`."""

from activities.models.config import ModelSettings, OpenAISettings, StubSettings, read_models
from activities.models.registry import Models
from activities.models.request import Message, Model, ModelReply, ModelRequest

__all__ = [
    "Message",
    "Model",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "Models",
    "OpenAISettings",
    "StubSettings",
    "read_models",
]
