"""How a model's reply becomes actions, and how their results go back."""
