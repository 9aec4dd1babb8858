"""Evidence about the program and about pull requests: verification of claims, and trials on a repository's past."""
