"""Skills: written instructions for kinds of work, which a model reads when its work is about them."""
