-- Checkpoints and dead letters written by a worker while another owned the bucket.
select format('%s of bucket %s to %s by %s while %s owned it, at %s', z.what, z.bucket, z.position, z.writer, z.owner_name, z.at)
from (
    select 'checkpoint' as what, c.bucket, c.after as position, c.writer, c.owner, c.owner_name, c.at from chaos.checkpoints c
    union all
    select 'dead letter', l.bucket, l.position, l.writer, l.owner, l.owner_name, l.at from chaos.letters l
) as z
where z.owner is not null and z.writer is distinct from z.owner_name
order by z.at
