"""The Hugging Face Hub: publish a run with a model card, pull one, and datasets of runs."""
