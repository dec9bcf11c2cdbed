-- Records a migration.
insert into suisha.migrations (component, version, name, sha256)
values (@component::text, @version::int, @name::text, @sha256::text)
