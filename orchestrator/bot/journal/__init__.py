"""The append-only record of a run: written as it happens, read by everything else."""
