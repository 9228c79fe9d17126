"""Many runs: what is run together, and statistics over seeds and environments."""
