-- The files that changed most often.
select path, commits, added, deleted
from demo.churn
order by commits desc, added + deleted desc, path
limit 10
