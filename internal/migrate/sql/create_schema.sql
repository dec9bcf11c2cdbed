-- The schema of what is ours.
create schema suisha
