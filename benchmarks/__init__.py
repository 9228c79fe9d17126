"""Every published number has its command here, and its raw result under results/."""
