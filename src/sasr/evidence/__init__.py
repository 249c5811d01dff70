"""From retained states to counts of how often a state was visited in successes and in failures."""
