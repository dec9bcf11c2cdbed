-- Streams whose versions are not 1, 2, 3, …
select format('%s has %s events up to version %s', e.stream, count(*), max(e.version))
from chaos.events e
group by e.stream
having count(*) <> max(e.version)
