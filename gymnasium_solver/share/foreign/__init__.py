"""Models and hyper-parameters of other libraries: Stable-Baselines3, its zoo, CleanRL, SLM-Lab.

model_files.py reads models, and pickles without unpickling them; imported_model.py turns them into
runs; config_files.py reads files of hyper-parameters, hyperparams.py translates them.
"""
