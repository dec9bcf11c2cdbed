-- What the server is.
select 'PostgreSQL ' || current_setting('server_version')
