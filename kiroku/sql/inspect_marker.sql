-- The migration of kiroku that the schema we made is equal to.
select through
from suisha.kiroku_install;
