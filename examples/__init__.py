"""Small programs that use the library as its users would."""
