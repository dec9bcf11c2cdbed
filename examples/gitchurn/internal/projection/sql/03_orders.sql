-- The generated orders, likewise.
create table demo.orders (
    stream text primary key,
    lines bigint not null,
    amount bigint not null,
    version bigint not null
)
