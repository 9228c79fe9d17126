"""What each key does while `gsolve train` runs: requests through the training loop's Control."""

from collections.abc import Callable

from gymnasium_solver.cli.live_state import State

Show = Callable[[str, str], None]  # level, text

CHECKPOINT = ("c", "checkpoint: save one after this epoch")
EVALUATE = ("e", "evaluate: after this epoch; training continues as without it")
PAUSE = ("p", "pause: before the next step; p again continues")
CONTINUE = ("p", "continue: training is paused")
VIDEO = ("v", "video: record the next evaluation")
QUIT = ("q", "save and stop: after this epoch; gsolve train --resume continues")
HELP = ("h", "help: show or hide this")


class KeyActions:
    def __init__(self, state: State, show: Show) -> None:
        """`show` puts a message into the dashboard."""
        self._state, self._show = state, show
        self._awaits_checkpoint = False
        self._list_keys()

    def press(self, key: str) -> None:
        state, control = self._state, self._state.control
        if key == "c":
            control.checkpoint()
            self._awaits_checkpoint = True
        elif key == "e" and state.activity.phase == "evaluating":
            self._show("info", "this policy is being evaluated now")
        elif key == "e":
            control.evaluate()
        elif key == "p":
            (control.resume if state.activity.is_paused else control.pause)()
        elif key == "v" and control.can_record_video:
            control.record_video()
            self._show("info", "a video of the next evaluation will be recorded")
        elif key == "q":
            control.stop("q was pressed")
        elif key in ("h", "?"):
            state.show_help = not state.show_help
        self._list_keys()

    def took_checkpoint(self) -> bool:
        """Whether the checkpoint that was just saved had been requested here."""
        was_awaited, self._awaits_checkpoint = self._awaits_checkpoint, False
        return was_awaited

    def _list_keys(self) -> None:
        keys = [CHECKPOINT, EVALUATE, CONTINUE if self._state.activity.is_paused else PAUSE]
        keys += [VIDEO] if self._state.control.can_record_video else []
        self._state.key_help = [*keys, QUIT, HELP]
