-- How many claims there were, by reason.
select c.reason, count(*)::integer
from chaos.claims c
group by c.reason
