-- Checkpoints that went back.
select format('bucket %s from %s to %s by %s at %s', c.bucket, c.before, c.after, c.writer, c.at)
from chaos.checkpoints c
where c.after < c.before
order by c.id
