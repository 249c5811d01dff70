"""Markdown pages and pictures, drawn from a folder of results and nothing else; the same folder gives the same text."""
