-- How many payloads there are.
select count(*) from payloads
