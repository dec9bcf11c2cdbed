-- What was settled above a bucket's checkpoint, where events of several streams of
-- it are in flight at once (P-39): written in the statement that writes the
-- checkpoint, and good only as long as the checkpoint's row is the one of that
-- statement. settled is a format of shardpub's (acks.go). Without these rows a
-- worker that takes a bucket over repeats more, and nothing else: they may be
-- deleted at any time. A row is rewritten often, so pages keep room for that.
create table suisha.acks (
    subscription text not null,
    bucket int not null,
    checkpoint bigint not null,
    checkpoint_at timestamptz not null,
    settled bytea not null,
    primary key (subscription, bucket)
) with (fillfactor = 50);
