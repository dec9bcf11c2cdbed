-- Checkpoints, the view on them that is kiroku's public surface, and the
-- events that a subscription gave up.

create table kiroku.subscriptions (
    subscription_id       bigserial   primary key,
    subscription_name     text        not null,
    stream_name           text        not null default '$all',
    last_seen             bigint      not null default 0,
    consumer_group_member int         not null default 0,
    consumer_group_size   int         not null default 1,
    created_at            timestamptz not null default now(),
    updated_at            timestamptz not null default now()
);

create unique index ix_subscriptions_name_member on kiroku.subscriptions (subscription_name, consumer_group_member);

-- The detour through a common table expression keeps the view read-only.
create view kiroku.subscription_checkpoints_v1 with (security_invoker = false) as
with checkpoint_rows as not materialized (
    select
        subscription_name,
        consumer_group_member,
        last_seen as checkpoint_position,
        updated_at as checkpoint_updated_at
    from kiroku.subscriptions
)
select subscription_name, consumer_group_member, checkpoint_position, checkpoint_updated_at
from checkpoint_rows;

comment on view kiroku.subscription_checkpoints_v1 is
    'Checkpoints by subscription and member, version 1 of the shape. Read-only; rows come in no particular order.';
comment on column kiroku.subscription_checkpoints_v1.subscription_name is
    'Name of the subscription.';
comment on column kiroku.subscription_checkpoints_v1.consumer_group_member is
    'Member of the consumer group; 0 also where there is no group.';
comment on column kiroku.subscription_checkpoints_v1.checkpoint_position is
    'Stored global position. A reset may lower it.';
comment on column kiroku.subscription_checkpoints_v1.checkpoint_updated_at is
    'When the row was last written, which proves no progress.';

create table kiroku.dead_letters (
    dead_letter_id        bigserial   primary key,
    subscription_name     text        not null,
    consumer_group_member int         not null default 0,
    global_position       bigint      not null,
    event_id              uuid        not null references kiroku.events (event_id),
    reason                jsonb       not null,
    reason_summary        text        not null,
    attempt_count         int         not null,
    created_at            timestamptz not null default now(),
    constraint dead_letters_subscription_name_consumer_group_member_global_key
        unique (subscription_name, consumer_group_member, global_position, event_id)
);

create index ix_dead_letters_event_id on kiroku.dead_letters (event_id);
create index ix_dead_letters_subscription_position on kiroku.dead_letters
    (subscription_name, consumer_group_member, global_position desc, dead_letter_id desc);
