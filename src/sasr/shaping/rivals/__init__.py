"""Other authors' reward shapers, to compare SASR with, and everything that only they use."""
