-- Payloads $1, in one statement.
insert into payloads (data) select d::jsonb from unnest($1::text[]) d
