-- keiro's one table, in keiro's shape (S-20): column for column, constraint for
-- constraint, index for index. Nothing of ours is added to it.
create table keiro.keiro_subscription_shards (
    subscription_name text not null,
    bucket int not null,
    shard_count int not null,
    owner_worker_id uuid,
    lease_expires_at timestamptz,
    heartbeat_at timestamptz,
    updated_at timestamptz not null default now(),
    primary key (subscription_name, bucket),
    constraint keiro_subscription_shards_bucket_range_chk check (bucket >= 0 and bucket < shard_count),
    constraint keiro_subscription_shards_count_chk check (shard_count >= 1)
);

create index keiro_subscription_shards_owner_idx
    on keiro.keiro_subscription_shards (subscription_name, owner_worker_id);

create index keiro_subscription_shards_lease_idx
    on keiro.keiro_subscription_shards (subscription_name, lease_expires_at);
