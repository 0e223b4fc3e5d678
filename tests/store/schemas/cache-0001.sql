CREATE TABLE alembic_version_cache (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_cache_pkc PRIMARY KEY (version_num));
CREATE TABLE cache_decision ( id INTEGER NOT NULL,
  at DOUBLE NOT NULL,
  gap DOUBLE,
  body TEXT NOT NULL,
  CONSTRAINT pk_cache_decision PRIMARY KEY (id) );
