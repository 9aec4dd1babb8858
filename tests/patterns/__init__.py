"""Shows that no pattern of the program takes more than linear time, whatever the text.

`collection` lists the patterns, `automaton` turns one into an automaton, `backtracking` proves its growth, and
`pumps` makes texts that would show a wrong proof.
"""
