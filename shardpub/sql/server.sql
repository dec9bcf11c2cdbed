-- Who is answering: another value means another server, or another history of
-- the same one (P-31).
select format(
    '%s/%s/%s',
    (select system_identifier from pg_control_system()),
    case when pg_is_in_recovery() then 'standby' else left(pg_walfile_name(pg_current_wal_lsn()), 8) end,
    current_setting('server_version_num')
)
