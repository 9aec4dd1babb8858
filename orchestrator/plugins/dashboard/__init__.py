"""The page that shows the runs of this home, live and past."""
