"""What acts: observations in, actions out."""
