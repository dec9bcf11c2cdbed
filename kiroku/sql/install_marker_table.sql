-- Says that schema kiroku was made here and not by kiroku's own tool.
create table if not exists suisha.kiroku_install (
    singleton    boolean     primary key default true check (singleton),
    through      int         not null,
    installed_at timestamptz not null default now()
);
