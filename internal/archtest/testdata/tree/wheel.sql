-- See T-21.
select 1
