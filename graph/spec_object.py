"""What every object of a graph file has in common: only known keys, and messages that say which there are."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from graph.spec_errors import Finding, refuse, unknown_keys, wrong_type


class Spec(BaseModel):
    """An object of the file: only known keys."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)
    about: ClassVar[str]
    """What messages call it, with its article."""
    later: ClassVar[dict[str, str]] = {}
    """Known keys that this version refuses, and what to do instead (may be empty)."""
    mends: ClassVar[dict[str, str]] = {}
    """The mend for keys that people write here by mistake."""
    example: ClassVar[str | None] = None
    """The mend for what is no object."""
    overview: ClassVar[str | None] = None
    """What keys there are, where they are too many to be listed."""
    free_prefix: ClassVar[str | None] = None
    """Keys that begin so are the author's own and ignored."""
    nullable: ClassVar[frozenset[str]] = frozenset()
    """Keys whose value may be null; any other key without a value is a mistake."""

    @classmethod
    def written(cls) -> list[str]:
        """The keys that may be written, in the order of the documentation."""
        return [f.alias or name for name, f in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: Any) -> Any:
        if isinstance(data, cls):  # made of what is no object
            return data
        if not isinstance(data, dict):
            mend = f"write `{cls.example}`" if cls.example else None
            raise wrong_type(cls.about, f"an object with keys such as `{'`, `'.join(cls.written()[:4])}`", data, mend)
        prefix = cls.free_prefix
        if prefix is not None:
            data = {key: value for key, value in data.items() if not str(key).startswith(prefix)}
        findings = unknown_keys(cls.about, data, cls.written(), cls.later, cls.mends, cls.overview)
        for key, value in data.items():
            if value is None and key in cls.written() and key not in cls.nullable:
                findings.append(Finding("wrong_type", f"`{key}` has no value", "give it one, or leave it out", key))
        if findings:
            raise refuse(*findings)
        return data
