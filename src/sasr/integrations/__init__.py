"""SASR inside other people's agents."""
