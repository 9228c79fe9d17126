"""An inspector in Gradio with the widgets of the usual ones, on the frames of one recorded episode.

    python gradio_inspector.py FOLDER PORT      FOLDER has 0.png, 1.png, ... and steps.json

A frame, a slider, a table of all steps and one of the current step, wired as such apps are: the
slider's change asks the server for the frame and the row. It is the least such an app can do, so
its times are those of Gradio itself.
"""

import json
import sys
from pathlib import Path

import gradio as gr


def main(folder: Path, port: int) -> None:
    steps = json.loads((folder / "steps.json").read_text())
    columns = list(steps[0])

    def show(t: int) -> tuple[str, list[list[object]]]:
        return str(folder / f"{int(t)}.png"), [[name, steps[int(t)][name]] for name in columns]

    with gr.Blocks() as app:
        slider = gr.Slider(0, len(steps) - 1, value=0, step=1, label="Step")
        with gr.Row():
            frame = gr.Image(label="Frame", elem_id="frame")
            now = gr.Dataframe(headers=["name", "value"], label="Current step")
        gr.Dataframe([list(row.values()) for row in steps], headers=columns, label="Steps")
        slider.change(show, slider, [frame, now], show_progress="hidden")
        app.load(show, slider, [frame, now])
    app.launch(server_port=port, allowed_paths=[str(folder)], quiet=True, inbrowser=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
