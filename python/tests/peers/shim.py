"""What the stand-ins share: how a module is exchanged, and how a test is set aside with a reason."""

from __future__ import annotations

import importlib
import sys
import types
import unittest
from typing import Any, NoReturn


class NotApplicable(unittest.SkipTest):
    """antiphon has nothing to answer with. The words are the reason in the table."""


class Absent:
    """A value that antiphon does not give. A test that only passes it on goes on; one that looks at it is set aside."""

    def __init__(self, reason: str) -> None:
        self.__dict__["reason"] = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise NotApplicable(self.__dict__["reason"])


class StandIn(types.ModuleType):
    """A module that has what `answers` has; anything else of the original is set aside with a reason.

    answers  a module: its public names, and those private names that their tests call, stand in for the original's
    absent   name -> why antiphon has no such thing; "" for all other names
    """

    def __init__(self, name: str, answers: types.ModuleType, absent: dict[str, str]) -> None:
        super().__init__(name, f"stands in for {name}")
        self._absent = absent
        for key in answers.ANSWERS:
            setattr(self, key, getattr(answers, key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        absent = self.__dict__["_absent"]
        raise NotApplicable(absent.get(name, absent[""]))


def exchange(name: str, answers: types.ModuleType) -> None:
    """Puts the stand-in in the place of the module `name`, for those who import it from now on."""
    importlib.import_module(name)  # Others in their package that use the original have it by now, and keep it.
    stand_in = StandIn(name, answers, answers.ABSENT)
    sys.modules[name] = stand_in
    parent, _, leaf = name.rpartition(".")
    setattr(sys.modules[parent], leaf, stand_in)
