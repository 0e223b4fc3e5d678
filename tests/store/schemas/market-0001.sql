CREATE INDEX ix_market_rental_state ON market_rental (state);
CREATE INDEX ix_market_rental_tenant ON market_rental (tenant);
CREATE TABLE alembic_version_market (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_market_pkc PRIMARY KEY (version_num));
CREATE TABLE market_rental ( id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  generation INTEGER NOT NULL,
  offer TEXT NOT NULL,
  micro_usd_per_hour BIGINT NOT NULL,
  state TEXT NOT NULL,
  wanted_at DOUBLE NOT NULL,
  until DOUBLE NOT NULL,
  micro_usd BIGINT NOT NULL,
  instance_id TEXT NOT NULL,
  launched_at DOUBLE,
  ended_at DOUBLE,
  ready INTEGER NOT NULL,
  exact INTEGER NOT NULL,
  cause TEXT NOT NULL,
  version INTEGER NOT NULL,
  CONSTRAINT pk_market_rental PRIMARY KEY (id) );
