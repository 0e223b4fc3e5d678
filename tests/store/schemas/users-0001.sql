CREATE TABLE alembic_version_users (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_users_pkc PRIMARY KEY (version_num));
CREATE TABLE user_rule ( kind TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT,
  role TEXT NOT NULL,
  run_as TEXT NOT NULL,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_user_rule PRIMARY KEY (kind,
  name) );
CREATE TABLE user_token ( token_id TEXT NOT NULL,
  name TEXT NOT NULL,
  uid BIGINT NOT NULL,
  CONSTRAINT pk_user_token PRIMARY KEY (token_id) );
