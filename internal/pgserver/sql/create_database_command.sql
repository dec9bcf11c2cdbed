-- The command that creates database $1 as a copy of $2. Copying files is
-- twice as fast as writing the copy through the log.
select format('create database %I template %I strategy file_copy', $1::text, $2::text)
