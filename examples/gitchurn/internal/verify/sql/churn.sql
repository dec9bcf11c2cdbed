-- The projected table, to be compared row by row.
select path, commits, added, deleted from demo.churn
