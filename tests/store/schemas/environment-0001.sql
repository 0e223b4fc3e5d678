CREATE TABLE alembic_version_environment (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_environment_pkc PRIMARY KEY (version_num));
CREATE TABLE environment_made ( id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  folder TEXT NOT NULL,
  kind TEXT NOT NULL,
  "key" TEXT NOT NULL,
  source TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  files BIGINT NOT NULL,
  made_at DOUBLE NOT NULL,
  used_at DOUBLE NOT NULL,
  CONSTRAINT pk_environment_made PRIMARY KEY (id) );
CREATE TABLE environment_pin ( job_id TEXT NOT NULL,
  folder TEXT NOT NULL,
  kind TEXT NOT NULL,
  "key" TEXT NOT NULL,
  CONSTRAINT pk_environment_pin PRIMARY KEY (job_id) );
