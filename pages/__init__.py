"""The generated parts of docs/ and README.md: tables and pictures between markers, drawn from stored results alone.

python -m pages            write them: what `make results` does
python -m pages --check    name what is not up to date, and exit with 1 if anything is
"""
