"""Statistics, tables, figures and the HTML page, from run folders and the results store."""
