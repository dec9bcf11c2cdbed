-- Records that schema kiroku was made, equal to kiroku's migration $1.
insert into suisha.kiroku_install (through)
values ($1)
on conflict (singleton) do update
set through = excluded.through, installed_at = excluded.installed_at;
