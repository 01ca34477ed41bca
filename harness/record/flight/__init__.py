"""Flight-recorder dumps: read without trusting them, judged for order over all groups at once, and written.

torch writes one file a rank, a pickle or JSON, of the last operations each process issued (format 2.x). `folder.load`
reads a folder into compact columns, rank by rank; `judge.judge` says what each progress model makes of them.
"""
