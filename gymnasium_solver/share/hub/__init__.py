"""The Hugging Face Hub: publish a run with a model card, pull one, and datasets of runs.

package.py gathers the files that leave, without what belongs to this machine and this user,
publish.py has the scores and the model card (card.md), client.py talks to the Hub, pull.py verifies
what comes.
"""
