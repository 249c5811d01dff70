"""From counts to shaped rewards."""
