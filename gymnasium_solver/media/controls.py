"""The keys that control a session, and when a person's next step is due: the same in the window and
in the terminal."""

from abc import ABC, abstractmethod

import numpy as np

from gymnasium_solver.media.keys import KeyMap
from gymnasium_solver.media.session import Session

SAME_KEYS = {
    "return": "n", "right": "n", "space": "p", "=": "+", "[+]": "+", "[-]": "-", "escape": "q"
}  # fmt: skip


class Controls(ABC):
    """Base of what shows a session and reads keys."""

    def __init__(self, session: Session, keys: KeyMap | None = None) -> None:
        """`keys`: of the person who plays; None if nobody does."""
        self.session, self.keys = session, keys
        self._tapped: set[str] = set()  # pressed since the last step

    @abstractmethod
    def _keys_action(self, keys: KeyMap, now_s: float) -> np.ndarray | None:
        """The action of the keys that are pressed now; None if there is none."""

    def action(self, now_s: float) -> np.ndarray | None:
        """The person's action; None: the actor's."""
        if self.keys is None:
            return None
        action = self._keys_action(self.keys, now_s)
        return self.session.last_action if action is None else action

    def is_due(self, now_s: float) -> bool:
        """Whether the next step should be taken now."""
        if not self.session.is_due(now_s):
            return False
        if self.keys is None or self.session.moment.is_over:
            return True
        if self.session.options.waits_for_key:
            return bool(self._tapped)
        return self.action(now_s) is not None

    def advance(self, now_s: float) -> None:
        self.session.advance(self.action(now_s), now_s)
        self._tapped.clear()

    def control(self, key: str, now_s: float) -> None:
        """Do what a key means that is not one of the player's."""
        session, key = self.session, SAME_KEYS.get(key, key)
        if key == "q":
            session.quit()
        elif key == "p":
            session.toggle_pause()
        elif key == "n":
            action = self.action(now_s)
            if self.keys is None or action is not None:
                session.step_once(action, now_s)
                self._tapped.clear()
        elif key in ("+", "-"):
            session.change_speed(1 if key == "+" else -1)
        elif key == "r":
            session.restart()
        elif key == "s":
            session.save()
