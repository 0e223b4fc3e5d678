CREATE TABLE alembic_version_tenancy (version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_tenancy_pkc PRIMARY KEY (version_num));
CREATE TABLE plane ( id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  state TEXT NOT NULL,
  busy BIGINT NOT NULL,
  created_at DOUBLE NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT pk_plane PRIMARY KEY (id),
  CONSTRAINT uq_plane_name UNIQUE (name) );
