"""Runners, which carry jobs out: in this process, in a local pool of processes, on a Ray cluster."""
