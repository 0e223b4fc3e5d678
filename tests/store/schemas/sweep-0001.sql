CREATE INDEX ix_sweep_rung_array ON sweep_rung (array_id);
CREATE TABLE alembic_version_sweep (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_sweep_pkc PRIMARY KEY (version_num));
CREATE TABLE sweep_rung ( job_id TEXT NOT NULL,
  rung INTEGER NOT NULL,
  array_id TEXT NOT NULL,
  value DOUBLE,
  goes_on INTEGER NOT NULL,
  CONSTRAINT pk_sweep_rung PRIMARY KEY (job_id,
  rung) );
