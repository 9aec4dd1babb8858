"""The pull-request bot."""
