"""The append-only record of a run. It is written as the run proceeds, and read by everything else."""
