-- One row, one commit.
insert into commits default values
