CREATE INDEX ix_notify_delivery_created ON notify_delivery (created_at,
  id);
CREATE INDEX ix_notify_delivery_ended ON notify_delivery (ended_at);
CREATE INDEX ix_notify_delivery_open ON notify_delivery (channel,
  next_at) WHERE ended_at IS NULL;
CREATE INDEX ix_notify_news_delivery ON notify_news (delivery_id);
CREATE INDEX ix_notify_news_waiting ON notify_news (channel,
  due_at,
  id) WHERE delivery_id IS NULL;
CREATE TABLE alembic_version_notify (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_notify_pkc PRIMARY KEY (version_num));
CREATE TABLE notify_delivery ( id TEXT NOT NULL,
  channel TEXT NOT NULL,
  owner TEXT NOT NULL,
  created_at DOUBLE NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  next_at DOUBLE NOT NULL,
  ended_at DOUBLE,
  error TEXT NOT NULL,
  CONSTRAINT pk_notify_delivery PRIMARY KEY (id) );
CREATE TABLE notify_mark ( name TEXT NOT NULL,
  at DOUBLE NOT NULL,
  CONSTRAINT pk_notify_mark PRIMARY KEY (name) );
CREATE TABLE notify_news ( id TEXT NOT NULL,
  channel TEXT NOT NULL,
  owner TEXT NOT NULL,
  tenant TEXT NOT NULL,
  topic TEXT NOT NULL,
  at DOUBLE NOT NULL,
  about TEXT NOT NULL,
  title TEXT NOT NULL,
  job_id TEXT,
  facts TEXT NOT NULL,
  due_at DOUBLE NOT NULL,
  delivery_id TEXT,
  CONSTRAINT pk_notify_news PRIMARY KEY (id) );
CREATE TABLE notify_position ( id INTEGER NOT NULL,
  seq BIGINT NOT NULL,
  CONSTRAINT pk_notify_position PRIMARY KEY (id) );
CREATE TABLE notify_subscription ( id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  address BLOB NOT NULL,
  topics TEXT NOT NULL,
  created_at DOUBLE NOT NULL,
  created_by TEXT NOT NULL,
  from_seq BIGINT NOT NULL,
  jobs TEXT NOT NULL,
  waits_s DOUBLE,
  schedule TEXT NOT NULL,
  CONSTRAINT pk_notify_subscription PRIMARY KEY (id),
  CONSTRAINT uq_notify_subscription_name UNIQUE (tenant,
  name) );
