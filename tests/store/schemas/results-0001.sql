CREATE INDEX ix_results_artifact_job ON results_artifact (job);
CREATE INDEX ix_results_artifact_job_name ON results_artifact (tenant,
  job_name);
CREATE TABLE alembic_version_results (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_results_pkc PRIMARY KEY (version_num));
CREATE TABLE results_artifact ( id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  job TEXT NOT NULL,
  job_name TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  taken_at DOUBLE NOT NULL,
  pinned BOOLEAN NOT NULL,
  "by" TEXT NOT NULL,
  CONSTRAINT pk_results_artifact PRIMARY KEY (id) );
CREATE TABLE results_content ( tenant TEXT NOT NULL,
  digest TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  CONSTRAINT pk_results_content PRIMARY KEY (tenant,
  digest) );
CREATE TABLE results_pending ( job TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  CONSTRAINT pk_results_pending PRIMARY KEY (job,
  attempt) );
