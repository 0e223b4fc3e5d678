CREATE TABLE alembic_version_web (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_web_pkc PRIMARY KEY (version_num));
CREATE TABLE web_session ( digest TEXT NOT NULL,
  token_id TEXT NOT NULL,
  tenant TEXT,
  read_only INTEGER NOT NULL,
  name TEXT NOT NULL,
  "by" TEXT NOT NULL,
  made_at DOUBLE NOT NULL,
  used_at DOUBLE NOT NULL,
  expires_at DOUBLE NOT NULL,
  CONSTRAINT pk_web_session PRIMARY KEY (digest) );
CREATE TABLE web_shares ( subject TEXT NOT NULL,
  at DOUBLE NOT NULL,
  joined INTEGER NOT NULL,
  value TEXT NOT NULL,
  CONSTRAINT pk_web_shares PRIMARY KEY (subject,
  at) );
