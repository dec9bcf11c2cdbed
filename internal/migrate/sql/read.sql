-- What was applied of a component.
select version, name, sha256
from suisha.migrations
where component = @component::text
order by version
