"""The Hugging Face Hub: publish a run with a model card, pull one, and datasets of runs.

scrub.py removes what belongs to this machine and this user, package.py gathers the files that
leave, card.py has the scores and the model card, client.py talks to the Hub, pull.py verifies what
comes.
"""
