"""Models and hyper-parameters of other libraries: Stable-Baselines3, its zoo, CleanRL, SLM-Lab.

inert.py reads pickled data without unpickling, sb3.py and cleanrl.py read model files, model.py
turns their layers into our weights, make_run.py writes a run folder; fields.py and config_files.py
translate hyper-parameters.
"""
