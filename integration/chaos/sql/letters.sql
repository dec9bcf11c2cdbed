-- How many dead letters there are.
select count(*) from chaos.letters
