"""Policies: observations in, actions out."""
