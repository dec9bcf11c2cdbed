-- The command that drops database $1 whoever is connected to it.
select format('drop database if exists %I with (force)', $1::text)
