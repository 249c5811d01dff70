"""From environment steps to retained states of successes and failures."""
