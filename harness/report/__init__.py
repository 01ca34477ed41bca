"""What people and machines read of a run: terminal table, Markdown, JUnit, JSON lines, HTML."""
