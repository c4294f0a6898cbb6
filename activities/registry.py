"""All activities of an attempt process: ours, and users' own from the modules in ``FERRATA_ACTIVITIES``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.client import Client

from activities.attempt import AttemptActivities
from activities.chunk import ChunkActivities
from activities.collecting import CollectActivities
from activities.escalate import EscalateActivities
from activities.functions import Functions
from activities.load import LoadActivities
from activities.models import Models
from activities.outputs import OutputActivities
from activities.pinning import PinActivities
from activities.settings import Settings
from activities.stretch import StretchActivities
from activities.tools import Tools
from graph.errors import LoadError, Problem
from graph.problems import Report

Activity = Callable[..., Any]


class Activities:
    """What one attempt process offers; ``close`` it when its worker has stopped."""

    def __init__(self, settings: Settings, client: Client) -> None:
        """Open the store, the sandbox and the models, and import users' modules.

        Raises:
            LoadError: a setting is wrong; all problems at once.
        """
        report = Report()
        users = report.gather(user_activities, settings.activities) or {}
        tools = report.gather(Tools, settings, client, frozenset(users))
        report.raise_if_any()
        assert tools is not None, "what is missing is a problem"
        self.tools = tools
        attempts, chunks = AttemptActivities(self.tools), ChunkActivities(self.tools)
        loads, outputs, escalations = (
            LoadActivities(self.tools),
            OutputActivities(self.tools),
            EscalateActivities(self.tools),
        )
        results = CollectActivities(self.tools)
        ours: list[Activity] = [
            *(loads.load, loads.save, loads.restore),
            *(attempts.attempt, attempts.reroute, attempts.bind, attempts.check),
            StretchActivities(self.tools).stretch,
            *(
                PinActivities(self.tools).pin,
                chunks.chunk,
                chunks.reroute_chunk,
                results.fold,
                results.gather,
                results.collect,
            ),
            *(outputs.evaluate, outputs.pack),
            escalations.escalate,
        ]
        taken = sorted(users.keys() & {name_of(function) for function in ours})
        if taken:
            message = f"FERRATA_ACTIVITIES defines `{taken[0]}`, a name that Ferrata uses itself"
            raise LoadError([bad_module(message, "rename it")])
        self._all = ours + list(users.values())

    def all(self) -> list[Activity]:
        """The activities to register."""
        return self._all

    async def close(self) -> None:
        """Let connections and threads go."""
        await self.tools.close()


def attempt_activities(settings: Settings, client: Client) -> Activities:
    """The activities of an attempt process. Raises LoadError."""
    return Activities(settings, client)


def user_activities(modules: tuple[str, ...]) -> dict[str, Activity]:
    """Users' activities by name: every function decorated with ``@activity.defn`` in ``modules``.

    Raises:
        LoadError: ``bad_setting``: modules can't be imported, or two activities have one name; all problems at once.
    """
    found: dict[str, Activity] = {}
    problems: list[Problem] = []
    for module_name in modules:
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # a user's module may raise anything
            why = f"{type(error).__name__}: {error}"
            message = f"FERRATA_ACTIVITIES names `{module_name}`, which can't be imported: {why}"
            problems.append(bad_module(message, "check the name and PYTHONPATH"))
            continue
        for value in vars(module).values():
            name = name_of(value)
            if name is None:
                continue
            if found.setdefault(name, value) is not value:
                problems.append(bad_module(f"FERRATA_ACTIVITIES holds two activities called `{name}`", "rename one"))
    if problems:
        raise LoadError(problems)
    return found


def name_of(value: object) -> str | None:
    """The name of an activity; None if ``value`` is none."""
    if not callable(value) or isinstance(value, type):
        return None
    definition = activity._Definition.from_callable(value)
    return definition.name if definition else None


def bad_module(message: str, hint: str) -> Problem:
    return Problem(code="bad_setting", message=message, hint=hint)


def problems_of(settings: Settings) -> list[Problem]:
    """What is wrong with the modules and the models file that settings name; imports and reads them."""
    report = Report()
    report.gather(user_activities, settings.activities)
    report.gather(Models.open, settings.models)
    report.gather(Functions, settings.functions)
    return report.problems


def local_activities(settings: Settings) -> list[Activity]:
    """Local activities of the orchestrator process: none, so that nothing ever delays a workflow task."""
    return []
