"""Trackers: W&B, TensorBoard, CSV and Trackio, fed from the run folder by a process of their own.

A tracker is not an observer: training never calls it, waits for it or fails with it.
"""
