-- The schema of keiro's table, where keiro has never been.
create schema keiro
