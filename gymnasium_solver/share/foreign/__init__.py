"""Models and hyper-parameters of other libraries: Stable-Baselines3, its zoo, CleanRL, SLM-Lab."""
