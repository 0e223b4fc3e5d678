BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE alembic_version_market (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_market_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version_market" VALUES('0001');
CREATE TABLE alembic_version_serve (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_serve_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version_serve" VALUES('0001');
CREATE TABLE alembic_version_tenancy (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_tenancy_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version_tenancy" VALUES('0001');
CREATE TABLE attempt (
	job_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	placement TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	running_at DOUBLE, 
	ended_at DOUBLE, 
	stop TEXT, 
	stop_at DOUBLE, 
	stop_cause TEXT NOT NULL, 
	outcome TEXT, 
	error_code TEXT, 
	message TEXT NOT NULL, 
	ranks TEXT NOT NULL, 
	CONSTRAINT pk_attempt PRIMARY KEY (job_id, number), 
	CONSTRAINT fk_attempt_job_id FOREIGN KEY(job_id) REFERENCES job (id)
);
INSERT INTO "attempt" VALUES('j-0tb5q9dayx47',1,1,'[[0,"vm",[]]]',1.6995179923759732246e+09,1.69951799245496702191e+09,NULL,NULL,NULL,'',NULL,NULL,'','[{"rank":0,"node":"vm","devices":[],"pid":4109,"started_at":1699517992.454967,"ended_at":null,"exit_code":null,"signal":null,"lost":false,"stopped":false}]');
INSERT INTO "attempt" VALUES('j-0tb5qaer04e5',1,1,'[[0,"vm",[]]]',1.69951799344055223461e+09,1.69951799351209497449e+09,1.69951799351293396946e+09,NULL,NULL,'','succeeded',NULL,'done','[{"rank":0,"node":"vm","devices":[],"pid":4118,"started_at":1699517993.512095,"ended_at":1699517993.512934,"exit_code":0,"signal":null,"lost":false,"stopped":false}]');
INSERT INTO "attempt" VALUES('j-0tb5qb4kkvse',1,1,'[[0,"vm",[]]]',1699517994.13592,1.69951799419893598551e+09,1699517994.19991,NULL,NULL,'','failed','U101-exit-code','the process left with exit code 1','[{"rank":0,"node":"vm","devices":[],"pid":4133,"started_at":1699517994.198936,"ended_at":1699517994.19991,"exit_code":1,"signal":null,"lost":false,"stopped":false}]');
CREATE TABLE bundle (
	tenant TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	unpacked_bytes BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	used_at DOUBLE NOT NULL, 
	CONSTRAINT pk_bundle PRIMARY KEY (tenant, digest), 
	CONSTRAINT fk_bundle_tenant FOREIGN KEY(tenant) REFERENCES tenant (name)
);
CREATE TABLE control_lease (
	id INTEGER NOT NULL CONSTRAINT ck_control_lease_single CHECK (id = 1), 
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	host TEXT NOT NULL, 
	pid BIGINT NOT NULL, 
	since DOUBLE NOT NULL, 
	CONSTRAINT pk_control_lease PRIMARY KEY (id)
);
INSERT INTO "control_lease" VALUES(1,1,'shoal-3744','vm',3744,1.69951798897363829605e+09);
CREATE TABLE deployment (
	service_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	generation BIGINT NOT NULL, 
	tenant TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	manifest TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	idempotency_key TEXT, 
	CONSTRAINT pk_deployment PRIMARY KEY (service_id, number), 
	CONSTRAINT uq_deployment_idempotency_key UNIQUE (tenant, idempotency_key), 
	CONSTRAINT fk_deployment_service_id FOREIGN KEY(service_id) REFERENCES service (id)
);
CREATE TABLE drained_node (
	name TEXT NOT NULL, 
	because TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_drained_node PRIMARY KEY (name)
);
CREATE TABLE event (
	seq INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	tenant TEXT, 
	job_id TEXT, 
	attempt BIGINT, 
	old_state TEXT, 
	new_state TEXT, 
	data TEXT NOT NULL, 
	owner_id TEXT, 
	CONSTRAINT pk_event PRIMARY KEY (seq)
);
INSERT INTO "event" VALUES(1,1.69951798897363829605e+09,'control.lease-taken','shoal-3744','shoal-3744 took control',NULL,NULL,NULL,NULL,NULL,'{"host":"vm","pid":3744}',NULL);
INSERT INTO "event" VALUES(2,1.69951798906842684745e+09,'token.created','server','made by the server in /srv/shoal',NULL,NULL,NULL,NULL,NULL,'{"token_id":"tok-ca803e96ea96"}',NULL);
INSERT INTO "event" VALUES(3,1.69951798938456082339e+09,'control.opened','server','the control plane is open',NULL,NULL,NULL,NULL,NULL,'{"epoch":1,"adopted":0,"unfinished":0,"reconcile_s":0.2467}',NULL);
INSERT INTO "event" VALUES(4,1.69951798938565754888e+09,'tenant.created','server','tenant default','default',NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "event" VALUES(5,1.6995179910198843479e+09,'tenant.created','admin','tenant research','research',NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "event" VALUES(6,1.69951799236203145975e+09,'job.submitted','admin','job steady was submitted','default','j-0tb5q9dayx47',NULL,NULL,'QUEUED','{}',NULL);
INSERT INTO "event" VALUES(7,1.6995179923759732246e+09,'job.state','decider','starts: 1 core and 64 MiB on vm','default','j-0tb5q9dayx47',1,'QUEUED','ADMITTED','{"waited_s":0.013941764831542969}',NULL);
INSERT INTO "event" VALUES(8,1.6995179923759732246e+09,'job.state','decider','on vm','default','j-0tb5q9dayx47',1,'ADMITTED','PLACED','{"ranks":[["vm",[]]]}',NULL);
INSERT INTO "event" VALUES(9,1.6995179923759732246e+09,'job.state','attempt-runner','claimed','default','j-0tb5q9dayx47',1,'PLACED','STARTING','{"epoch":1}',NULL);
INSERT INTO "event" VALUES(10,1.69951799245586442949e+09,'job.state','attempt-runner','all ranks started','default','j-0tb5q9dayx47',1,'STARTING','RUNNING','{}',NULL);
INSERT INTO "event" VALUES(11,1.69951799343194580082e+09,'job.submitted','admin','job done was submitted','default','j-0tb5qaer04e5',NULL,NULL,'QUEUED','{}',NULL);
INSERT INTO "event" VALUES(12,1.69951799344055223461e+09,'job.state','decider','starts: 1 core and 64 MiB on vm','default','j-0tb5qaer04e5',1,'QUEUED','ADMITTED','{"waited_s":0.008606433868408203}',NULL);
INSERT INTO "event" VALUES(13,1.69951799344055223461e+09,'job.state','decider','on vm','default','j-0tb5qaer04e5',1,'ADMITTED','PLACED','{"ranks":[["vm",[]]]}',NULL);
INSERT INTO "event" VALUES(14,1.69951799344055223461e+09,'job.state','attempt-runner','claimed','default','j-0tb5qaer04e5',1,'PLACED','STARTING','{"epoch":1}',NULL);
INSERT INTO "event" VALUES(15,1.69951799351355361941e+09,'job.state','attempt-runner','all ranks started','default','j-0tb5qaer04e5',1,'STARTING','RUNNING','{}',NULL);
INSERT INTO "event" VALUES(16,1.69951799351676654812e+09,'job.state','attempt-runner','done','default','j-0tb5qaer04e5',1,'RUNNING','SUCCEEDED','{"outcome":"succeeded","error_code":null,"ran_s":0.0008389949798583984}',NULL);
INSERT INTO "event" VALUES(17,1.69951799413173770905e+09,'job.submitted','admin','job broken was submitted','research','j-0tb5qb4kkvse',NULL,NULL,'QUEUED','{}',NULL);
INSERT INTO "event" VALUES(18,1699517994.13592,'job.state','decider','starts: 1 core and 64 MiB on vm','research','j-0tb5qb4kkvse',1,'QUEUED','ADMITTED','{"waited_s":0.004182338714599609}',NULL);
INSERT INTO "event" VALUES(19,1699517994.13592,'job.state','decider','on vm','research','j-0tb5qb4kkvse',1,'ADMITTED','PLACED','{"ranks":[["vm",[]]]}',NULL);
INSERT INTO "event" VALUES(20,1699517994.13592,'job.state','attempt-runner','claimed','research','j-0tb5qb4kkvse',1,'PLACED','STARTING','{"epoch":1}',NULL);
INSERT INTO "event" VALUES(21,1.69951799420051074029e+09,'job.state','attempt-runner','all ranks started','research','j-0tb5qb4kkvse',1,'STARTING','RUNNING','{}',NULL);
INSERT INTO "event" VALUES(22,1.69951799421200537678e+09,'job.state','attempt-runner','the process left with exit code 1','research','j-0tb5qb4kkvse',1,'RUNNING','FAILED','{"outcome":"failed","error_code":"U101-exit-code","ran_s":0.0009739398956298828}',NULL);
INSERT INTO "event" VALUES(23,1.69951799508939719201e+09,'job.submitted','admin','job later was submitted','default','j-0tb5qc2hsg89',NULL,NULL,'QUEUED','{}',NULL);
CREATE TABLE job (
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	manifest TEXT NOT NULL, 
	resources TEXT NOT NULL, 
	ranks BIGINT NOT NULL, 
	priority_class TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	desired TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	queued_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	not_before DOUBLE NOT NULL, 
	deadline_at DOUBLE, 
	expected_s DOUBLE, 
	retries TEXT NOT NULL, 
	waited_s DOUBLE NOT NULL, 
	ran_s DOUBLE NOT NULL, 
	error_code TEXT, 
	message TEXT NOT NULL, 
	reason TEXT, 
	wait_cause TEXT, 
	progress TEXT NOT NULL, 
	idempotency_key TEXT, 
	fingerprint TEXT NOT NULL, 
	owner_id TEXT, 
	min_ranks BIGINT NOT NULL, 
	size BIGINT, 
	read_position TEXT, 
	array_id TEXT, 
	CONSTRAINT pk_job PRIMARY KEY (id), 
	CONSTRAINT uq_job_idempotency_key UNIQUE (tenant, idempotency_key)
);
INSERT INTO "job" VALUES('j-0tb5q9dayx47','default','steady','RUNNING',5,'{"kind":"job","name":"steady","description":"","labels":{},"command":["sleep","400"],"files":[],"env":{},"secrets":{},"resources":{"accelerators":{"type":"any","count":0,"share":"exclusive"},"cpus":1.0,"memory":67108864},"ranks":1,"network":true,"priority_class":"best-effort","priority":0,"placement":"pack","after":[],"restart":{"on":"failure","limits":{"user":0,"platform":3,"infrastructure":5},"backoff":1.0},"grace":10.0,"inputs":[],"outputs":[],"checkpoint":{},"metrics":{"regex":{}},"extensions":{}}','{"accelerators":{},"cpu_milli":1000,"memory_bytes":67108864,"share":"exclusive","device_memory_bytes":0}',1,'best-effort',0,1.69951799236203145975e+09,1.69951799245586442949e+09,'run',1,1.69951799236203145975e+09,1.69951799245496702191e+09,NULL,0.0,NULL,NULL,'{}',1.394176483154296875e-02,0.0,NULL,'','{"code":"placed","text":"starts: 1 core and 64 MiB on vm","facts":{"tenant":"default","waited_s":0.013941764831542969}}',NULL,'{}','3dcbf223dac343f7a8824e8c596630d8','05ddf4641a3ffdc666e04e09b9223910fe7a7d77cb95446a50db11c70477dd98',NULL,1,1,NULL,NULL);
INSERT INTO "job" VALUES('j-0tb5qaer04e5','default','done','SUCCEEDED',6,'{"kind":"job","name":"done","description":"","labels":{},"command":["true"],"files":[],"env":{},"secrets":{},"resources":{"accelerators":{"type":"any","count":0,"share":"exclusive"},"cpus":1.0,"memory":67108864},"ranks":1,"network":true,"priority_class":"best-effort","priority":0,"placement":"pack","after":[],"restart":{"on":"failure","limits":{"user":0,"platform":3,"infrastructure":5},"backoff":1.0},"grace":10.0,"inputs":[],"outputs":[],"checkpoint":{},"metrics":{"regex":{}},"extensions":{}}','{"accelerators":{},"cpu_milli":1000,"memory_bytes":67108864,"share":"exclusive","device_memory_bytes":0}',1,'best-effort',0,1.69951799343194580082e+09,1.69951799351676654812e+09,'run',1,1.69951799343194580082e+09,1.69951799351209497449e+09,1.69951799351293396946e+09,0.0,NULL,NULL,'{}',8.606433868408203125e-03,8.389949798583984375e-04,NULL,'done','{"code":"placed","text":"starts: 1 core and 64 MiB on vm","facts":{"tenant":"default","waited_s":0.008606433868408203}}',NULL,'{}','80c52164f49f4dc685f0f59f8087ab92','796060bd1876725ac51faf5b0a05577d6f4aa256f2e6b52488cc87f19cab77be',NULL,1,1,NULL,NULL);
INSERT INTO "job" VALUES('j-0tb5qb4kkvse','research','broken','FAILED',6,'{"kind":"job","name":"broken","tenant":"research","description":"","labels":{},"command":["false"],"files":[],"env":{},"secrets":{},"resources":{"accelerators":{"type":"any","count":0,"share":"exclusive"},"cpus":1.0,"memory":67108864},"ranks":1,"network":true,"priority_class":"best-effort","priority":0,"placement":"pack","after":[],"restart":{"on":"failure","limits":{"user":0,"platform":3,"infrastructure":5},"backoff":1.0},"grace":10.0,"inputs":[],"outputs":[],"checkpoint":{},"metrics":{"regex":{}},"extensions":{}}','{"accelerators":{},"cpu_milli":1000,"memory_bytes":67108864,"share":"exclusive","device_memory_bytes":0}',1,'best-effort',0,1.69951799413173770905e+09,1.69951799421200537678e+09,'run',1,1.69951799413173770905e+09,1.69951799419893598551e+09,1699517994.19991,0.0,NULL,NULL,'{}',4.182338714599609375e-03,9.739398956298828125e-04,'U101-exit-code','the process left with exit code 1','{"code":"placed","text":"starts: 1 core and 64 MiB on vm","facts":{"tenant":"research","waited_s":0.004182338714599609}}',NULL,'{}','3eda4f2b92fc4c059b519c73f7db3da2','f7709bf8d8e36606694312010afa433305d096074cd5f227fa2752d61593d4bf',NULL,1,1,NULL,NULL);
INSERT INTO "job" VALUES('j-0tb5qc2hsg89','default','later','QUEUED',1,'{"kind":"job","name":"later","description":"","labels":{},"command":["true"],"files":[],"env":{},"secrets":{},"resources":{"accelerators":{"type":"any","count":0,"share":"exclusive"},"cpus":1.0,"memory":67108864},"ranks":1,"network":true,"priority_class":"best-effort","priority":0,"placement":"pack","after":[{"job":"j-0tb5q9dayx47","when":"success"}],"restart":{"on":"failure","limits":{"user":0,"platform":3,"infrastructure":5},"backoff":1.0},"grace":10.0,"inputs":[],"outputs":[],"checkpoint":{},"metrics":{"regex":{}},"extensions":{}}','{"accelerators":{},"cpu_milli":1000,"memory_bytes":67108864,"share":"exclusive","device_memory_bytes":0}',1,'best-effort',0,1.69951799508939719201e+09,1.69951799508939719201e+09,'run',0,1.69951799508939719201e+09,NULL,NULL,0.0,NULL,NULL,'{}',0.0,0.0,NULL,'',NULL,NULL,'{}','faf79b6581f74222806b99a64bc47cc2','d912fbf86d40f568660b75fd5319d0b9cea245086febc6c0a707c523d16afd38',NULL,1,NULL,NULL,NULL);
CREATE TABLE job_array (
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	indices TEXT NOT NULL, 
	tasks BIGINT NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	CONSTRAINT pk_job_array PRIMARY KEY (id)
);
CREATE TABLE market_rental (
	id TEXT NOT NULL, 
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
	CONSTRAINT pk_market_rental PRIMARY KEY (id)
);
CREATE TABLE metric (
	id INTEGER NOT NULL, 
	job_id TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	at DOUBLE NOT NULL, 
	step BIGINT, 
	name TEXT NOT NULL, 
	value DOUBLE, 
	CONSTRAINT pk_metric PRIMARY KEY (id)
);
CREATE TABLE plane (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	state TEXT NOT NULL, 
	busy BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	CONSTRAINT pk_plane PRIMARY KEY (id), 
	CONSTRAINT uq_plane_name UNIQUE (name)
);
CREATE TABLE removed_events (
	id INTEGER NOT NULL CONSTRAINT ck_removed_events_single CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	CONSTRAINT pk_removed_events PRIMARY KEY (id)
);
CREATE TABLE secret (
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	ciphertext BLOB NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_secret PRIMARY KEY (tenant, name), 
	CONSTRAINT fk_secret_tenant FOREIGN KEY(tenant) REFERENCES tenant (name)
);
CREATE TABLE service (
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	manifest TEXT NOT NULL, 
	replicas BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	generation BIGINT NOT NULL, 
	deployment BIGINT NOT NULL, 
	serves BIGINT NOT NULL, 
	launched BIGINT NOT NULL, 
	ended_at DOUBLE, 
	reason TEXT, 
	fingerprint TEXT NOT NULL, 
	CONSTRAINT pk_service PRIMARY KEY (id)
);
CREATE TABLE tenant (
	name TEXT NOT NULL, 
	weight DOUBLE NOT NULL, 
	quota TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	max_priority_class TEXT NOT NULL, 
	sandbox TEXT NOT NULL, 
	CONSTRAINT pk_tenant PRIMARY KEY (name)
);
INSERT INTO "tenant" VALUES('default',1.0,'{"accelerators":null,"by_type":[],"cpu_milli":null,"memory_bytes":null,"running_jobs":null,"queued_jobs":null,"disk_bytes":null,"default_cpu_milli":null,"default_memory_bytes":null}',1.69951798938563013079e+09,'guaranteed','none');
INSERT INTO "tenant" VALUES('research',2.0,'{"accelerators":null,"by_type":[],"cpu_milli":null,"memory_bytes":null,"running_jobs":null,"queued_jobs":null,"disk_bytes":null,"default_cpu_milli":null,"default_memory_bytes":null}',1.69951799101985478396e+09,'guaranteed','none');
CREATE TABLE token (
	id TEXT NOT NULL, 
	tenant TEXT, 
	token_sha256 TEXT NOT NULL CONSTRAINT ck_token_hashed CHECK (length(token_sha256) = 64), 
	label TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	revoked_at DOUBLE, 
	read_only BIGINT NOT NULL, 
	CONSTRAINT pk_token PRIMARY KEY (id), 
	CONSTRAINT uq_token_token_sha256 UNIQUE (token_sha256), 
	CONSTRAINT fk_token_tenant FOREIGN KEY(tenant) REFERENCES tenant (name)
);
INSERT INTO "token" VALUES('tok-ca803e96ea96',NULL,'4b331a6e8af5e88204610e1a5c49e5bab3580f7bc62ee47123e6b48a3683f845','made by the server in /srv/shoal',1.69951798906842684745e+09,NULL,0);
CREATE INDEX ix_job_unfinished ON job (submitted_at, id) WHERE ended_at IS NULL;
CREATE INDEX ix_job_owner ON job (owner_id) WHERE owner_id IS NOT NULL;
CREATE INDEX ix_job_array ON job (array_id) WHERE array_id IS NOT NULL;
CREATE INDEX ix_job_tenant_name ON job (tenant, name);
CREATE INDEX ix_job_submitted ON job (submitted_at, id);
CREATE INDEX ix_job_tenant_unfinished ON job (tenant, submitted_at, id) WHERE ended_at IS NULL;
CREATE INDEX ix_job_finished ON job (tenant, state) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_job_ended ON job (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_job_tenant_submitted ON job (tenant, submitted_at, id);
CREATE INDEX ix_job_array_tenant_name ON job_array (tenant, name);
CREATE INDEX ix_job_array_submitted ON job_array (submitted_at, id);
CREATE INDEX ix_event_tenant ON event (tenant, seq);
CREATE INDEX ix_event_job ON event (job_id, seq);
CREATE INDEX ix_event_owner ON event (owner_id, seq) WHERE owner_id IS NOT NULL;
CREATE INDEX ix_metric_job ON metric (job_id, id);
CREATE INDEX ix_market_rental_tenant ON market_rental (tenant);
CREATE INDEX ix_market_rental_state ON market_rental (state);
CREATE UNIQUE INDEX uq_service_live_name ON service (tenant, name) WHERE state <> 'STOPPED';
CREATE INDEX ix_service_created ON service (created_at, id);
COMMIT;
