"""The judgement, pure: what ranks issue, when it may progress, what can never move again, and which order is a hazard.

Start with `progress` (the machine), `proof` (what is stuck for good), `outcomes` (every way a program can end) and
`order` (the hazard that needs no hang). Nothing here knows torch, processes or clocks.
"""
