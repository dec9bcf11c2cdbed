-- How often a bucket changed its owner since $1.
select count(*) from chaos.owners o where o.at >= $1
