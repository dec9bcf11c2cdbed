-- How much each file changed. The version is that of the last event counted.
create table demo.churn (
    stream text primary key,
    path text not null,
    commits bigint not null,
    added bigint not null,
    deleted bigint not null,
    version bigint not null
)
