"""Trackers: W&B, TensorBoard, CSV and Trackio, fed from the run folder by a process of their own.

    gsolve track RUN --to wandb,tensorboard --follow

A tracker is not an observer: training never calls it, waits for it or fails with it. follow.py
reads metrics.jsonl and events.jsonl and passes each row to a sink exactly once, even if the
follower is killed and started again, and after a resume has rewritten the files.
"""
