"""What is reproduced: one folder a subject, each with a README of its cause and sources."""
