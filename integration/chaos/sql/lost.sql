-- Events that no handler had and that are no dead letters.
select format('%s@%s at %s', e.stream, e.version, e.position)
from chaos.events e
where not exists (select from chaos.calls c where c.stream = e.stream and c.version = e.version)
    and not exists (select from kiroku.dead_letters d where d.global_position = e.position)
order by e.position
