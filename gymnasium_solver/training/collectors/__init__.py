"""Collectors: processes that act in the environments for one learner (`collectors` in a config).

    learner (remote.py)  -- weights, clock -->  collector (worker.py)
                         <-- rollout, state --

The learner sends its weights before each update. A collector makes rollout after rollout; rollout
j starts once weights of version j - max_staleness or newer have arrived, and uses the newest. The
learner takes rollout j of every collector, joins them column by column, and learns from them as
from a rollout of its own.

With every rollout comes what is needed to continue after it: the actions since the last reset of
the environments, the policy's carry and its random stream. The learner keeps that for each
collector. It is what a checkpoint holds, and what a collector that was lost is rebuilt from.

Backends carry messages and know nothing of their content: process.py, ray_actors.py.
"""
