"""The jobs themselves: how they are kept and change, what depends on what, why they wait."""
