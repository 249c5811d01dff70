"""The paper's tables as plan files."""
