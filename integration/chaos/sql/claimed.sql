-- When the last claim since $1 was.
select max(o.at) from chaos.owners o where o.to_worker is not null and o.at >= $1
