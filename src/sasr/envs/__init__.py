"""How environments are stepped: populations of them, in this process or in workers of their own."""
