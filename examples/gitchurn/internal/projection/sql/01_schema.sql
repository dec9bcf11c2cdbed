-- What the demo's handlers write, apart from the schemas of the library.
create schema demo
