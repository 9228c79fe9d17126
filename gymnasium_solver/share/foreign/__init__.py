"""Models and hyper-parameters of other libraries: Stable-Baselines3, its zoo, CleanRL, SLM-Lab.

model_files.py reads models, and pickles without unpickling them; imported_model.py turns them into
runs; settings.py translates files of hyper-parameters.
"""
