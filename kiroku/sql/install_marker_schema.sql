-- Our own schema; others of our tables live there, too.
create schema if not exists suisha;
