-- c51f4ec6d48cff2db670f9bb5da6a62136b53ec6aad3ae67263c6c969ce7bc5b
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
;
CREATE TABLE executors (
	owner TEXT NOT NULL, 
	address TEXT DEFAULT '' NOT NULL, 
	workspaces TEXT DEFAULT '[]' NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	CONSTRAINT pk_executors PRIMARY KEY (owner), 
	CONSTRAINT ck_executors_workspaces_json CHECK (workspaces IS NULL OR json_valid(workspaces))
)
;
CREATE TABLE idempotency (
	project TEXT NOT NULL, 
	principal TEXT NOT NULL, 
	method TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	create_ms BIGINT NOT NULL, 
	run TEXT DEFAULT '' NOT NULL, 
	response BLOB NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (project, principal, method, request_id)
)
;
CREATE INDEX ix_idempotency_age ON idempotency (create_ms)
;
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
)
;
CREATE TABLE models (
	alias TEXT NOT NULL, 
	vendor_model TEXT NOT NULL, 
	context_length BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (alias), 
	CONSTRAINT ck_models_context_length CHECK (context_length >= 0)
)
;
CREATE TABLE schemes (
	name TEXT NOT NULL, 
	category TEXT NOT NULL, 
	default_scope TEXT NOT NULL, 
	writable_by TEXT NOT NULL, 
	model_visible BOOLEAN NOT NULL, 
	CONSTRAINT pk_schemes PRIMARY KEY (name), 
	CONSTRAINT ck_schemes_default_scope CHECK (default_scope IN ('run', 'project', 'global')), 
	CONSTRAINT ck_schemes_writable_by_json CHECK (writable_by IS NULL OR json_valid(writable_by))
)
;
CREATE TABLE scopes (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	revision BIGINT DEFAULT 0 NOT NULL, 
	positions BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_scopes PRIMARY KEY (id), 
	CONSTRAINT uq_scopes_key UNIQUE ("key")
)
;
CREATE TABLE versions (
	id INTEGER NOT NULL, 
	entry_id INTEGER NOT NULL, 
	from_rev BIGINT NOT NULL, 
	writer BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	create_ms BIGINT NOT NULL, 
	hash BLOB NOT NULL, 
	body_size_bytes BIGINT NOT NULL, 
	stored_bytes BIGINT DEFAULT 0 NOT NULL, 
	attributes_bytes BIGINT NOT NULL, 
	attributes TEXT NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_versions PRIMARY KEY (id), 
	CONSTRAINT ck_versions_key CHECK (id = entry_id * 4294967296 + from_rev), 
	CONSTRAINT ck_versions_from_rev CHECK (from_rev BETWEEN 0 AND 4294967295), 
	CONSTRAINT ck_versions_writer CHECK (writer BETWEEN 1 AND 4), 
	CONSTRAINT ck_versions_attributes_json CHECK (attributes IS NULL OR json_valid(attributes))
)
;
CREATE TABLE views (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	entry_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	from_rev BIGINT NOT NULL, 
	to_rev BIGINT, 
	version_rev BIGINT, 
	chunk_bytes BIGINT DEFAULT 0 NOT NULL, 
	visibility BIGINT NOT NULL, 
	state BIGINT NOT NULL, 
	outcome TEXT DEFAULT '' NOT NULL, 
	turn BIGINT DEFAULT 0 NOT NULL, 
	loop BIGINT DEFAULT 0 NOT NULL, 
	position BIGINT NOT NULL, 
	write_count BIGINT NOT NULL, 
	create_ms BIGINT NOT NULL, 
	CONSTRAINT pk_views PRIMARY KEY (id), 
	CONSTRAINT ck_views_visibility CHECK (visibility BETWEEN 1 AND 3), 
	CONSTRAINT ck_views_state CHECK (state BETWEEN 1 AND 6), 
	CONSTRAINT ck_views_outcome CHECK (outcome = '' OR state IN (5, 6)), 
	CONSTRAINT ck_views_interval CHECK (to_rev > from_rev)
)
;
CREATE INDEX ix_views_closed ON views (run_id, to_rev) WHERE to_rev IS NOT NULL
;
CREATE INDEX ix_views_opened ON views (run_id, from_rev) WHERE to_rev IS NULL
;
CREATE INDEX ix_views_past ON views (run_id, path, to_rev) WHERE to_rev != 0
;
CREATE INDEX ix_views_proposed ON views (run_id, turn) WHERE to_rev IS NULL AND state = 2
;
CREATE INDEX ix_views_streaming ON views (create_ms, id) WHERE to_rev IS NULL AND state = 3
;
CREATE INDEX ix_views_waiting ON views (create_ms, id) WHERE to_rev IS NULL AND state = 2
;
CREATE UNIQUE INDEX uq_views_current ON views (run_id, path) WHERE to_rev IS NULL
;
CREATE TABLE entries (
	id INTEGER NOT NULL, 
	scope_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	scheme TEXT NOT NULL, 
	head_rev BIGINT NOT NULL, 
	shared_rev BIGINT, 
	create_ms BIGINT NOT NULL, 
	CONSTRAINT pk_entries PRIMARY KEY (id), 
	CONSTRAINT fk_entries_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id), 
	CONSTRAINT uq_entries_scope_id_path UNIQUE (scope_id, path), 
	CONSTRAINT ck_entries_path CHECK (length(path) BETWEEN 1 AND 2048), 
	CONSTRAINT ck_entries_shared_rev CHECK (shared_rev = head_rev)
)
;
CREATE INDEX ix_entries_changed ON entries (scope_id, shared_rev) WHERE shared_rev > 0
;
CREATE TABLE projects (
	id INTEGER NOT NULL, 
	scope_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	root TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	create_ms BIGINT NOT NULL, 
	config_path TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_projects PRIMARY KEY (id), 
	CONSTRAINT fk_projects_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id), 
	CONSTRAINT uq_projects_name UNIQUE (name), 
	CONSTRAINT uq_projects_workspace_id UNIQUE (workspace_id)
)
;
CREATE TABLE search_marks (
	scope_id INTEGER NOT NULL, 
	revision BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_search_marks PRIMARY KEY (scope_id), 
	CONSTRAINT fk_search_marks_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
)
;
CREATE TABLE blocks (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	version_id INTEGER, 
	body_size_bytes BIGINT DEFAULT 0 NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_blocks PRIMARY KEY (id), 
	CONSTRAINT uq_blocks_project_id_digest UNIQUE (project_id, digest), 
	CONSTRAINT fk_blocks_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
)
;
CREATE INDEX ix_blocks_version ON blocks (version_id) WHERE version_id IS NOT NULL
;
CREATE TABLE chunks (
	entry_id INTEGER NOT NULL, 
	version_rev BIGINT NOT NULL, 
	"offset" BIGINT NOT NULL, 
	data TEXT NOT NULL, 
	CONSTRAINT pk_chunks PRIMARY KEY (entry_id, version_rev, "offset"), 
	CONSTRAINT fk_chunks_entry_id FOREIGN KEY(entry_id) REFERENCES entries (id)
)
;
CREATE TABLE file_constraints (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	pattern TEXT NOT NULL, 
	kind TEXT DEFAULT 'add' NOT NULL, 
	create_ms BIGINT NOT NULL, 
	CONSTRAINT pk_file_constraints PRIMARY KEY (id), 
	CONSTRAINT uq_file_constraints_project_id_pattern UNIQUE (project_id, pattern), 
	CONSTRAINT ck_file_constraints_kind CHECK (kind IN ('add', 'readonly', 'ignore')), 
	CONSTRAINT fk_file_constraints_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
)
;
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	scope_id INTEGER NOT NULL, 
	alias TEXT NOT NULL, 
	status BIGINT NOT NULL, 
	model TEXT NOT NULL, 
	temperature FLOAT, 
	persona TEXT, 
	context_limit BIGINT, 
	turn BIGINT DEFAULT 0 NOT NULL, 
	turn_open BIGINT DEFAULT 0 NOT NULL, 
	loops BIGINT DEFAULT 0 NOT NULL, 
	loop_active BIGINT DEFAULT 0 NOT NULL, 
	loops_queued BIGINT DEFAULT 0 NOT NULL, 
	next_loop BIGINT DEFAULT 0 NOT NULL, 
	summary TEXT DEFAULT '' NOT NULL, 
	abort_requested BOOLEAN DEFAULT false NOT NULL, 
	lease_owner TEXT DEFAULT '' NOT NULL, 
	lease_address TEXT DEFAULT '' NOT NULL, 
	lease_epoch BIGINT DEFAULT 0 NOT NULL, 
	lease_expires_ms BIGINT DEFAULT 0 NOT NULL, 
	lost_turn BIGINT DEFAULT 0 NOT NULL, 
	losses BIGINT DEFAULT 0 NOT NULL, 
	revision BIGINT DEFAULT 0 NOT NULL, 
	create_ms BIGINT NOT NULL, 
	update_ms BIGINT NOT NULL, 
	forked_from_run TEXT DEFAULT '' NOT NULL, 
	forked_from_turn BIGINT DEFAULT 0 NOT NULL, 
	lineage BIGINT DEFAULT 0 NOT NULL, 
	budget TEXT DEFAULT '' NOT NULL, 
	yolo BOOLEAN DEFAULT false NOT NULL, 
	removed_ms BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT uq_runs_project_id_alias UNIQUE (project_id, alias), 
	CONSTRAINT uq_runs_scope_id UNIQUE (scope_id), 
	CONSTRAINT ck_runs_status CHECK (status IN (100, 102, 200, 202, 499, 500)), 
	CONSTRAINT ck_runs_temperature CHECK (temperature BETWEEN 0 AND 2), 
	CONSTRAINT ck_runs_context_limit CHECK (context_limit >= 1024), 
	CONSTRAINT ck_runs_loops_queued CHECK (loops_queued >= 0), 
	CONSTRAINT fk_runs_project_id FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_runs_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
)
;
CREATE INDEX ix_runs_claimed ON runs (lease_owner) WHERE lease_owner != ''
;
CREATE INDEX ix_runs_latest ON runs (project_id, update_ms, id)
;
CREATE INDEX ix_runs_lineage ON runs (lineage) WHERE lineage != 0
;
CREATE INDEX ix_runs_removed ON runs (removed_ms) WHERE removed_ms != 0
;
CREATE INDEX ix_runs_waiting ON runs (project_id, next_loop) WHERE next_loop != 0
;
CREATE TABLE loops (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	sequence BIGINT NOT NULL, 
	settings TEXT NOT NULL, 
	prompt TEXT NOT NULL, 
	status BIGINT NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	summary TEXT DEFAULT '' NOT NULL, 
	first_turn BIGINT DEFAULT 0 NOT NULL, 
	turns BIGINT DEFAULT 0 NOT NULL, 
	prompt_tokens BIGINT DEFAULT 0 NOT NULL, 
	cached_tokens BIGINT DEFAULT 0 NOT NULL, 
	completion_tokens BIGINT DEFAULT 0 NOT NULL, 
	reasoning_tokens BIGINT DEFAULT 0 NOT NULL, 
	total_tokens BIGINT DEFAULT 0 NOT NULL, 
	cost_usd FLOAT, 
	create_ms BIGINT NOT NULL, 
	end_ms BIGINT DEFAULT 0 NOT NULL, 
	revision BIGINT NOT NULL, 
	CONSTRAINT pk_loops PRIMARY KEY (id), 
	CONSTRAINT uq_loops_run_id_sequence UNIQUE (run_id, sequence), 
	CONSTRAINT ck_loops_status CHECK (status IN (100, 102, 202, 200, 204, 413, 422, 499, 500)), 
	CONSTRAINT ck_loops_settings_json CHECK (settings IS NULL OR json_valid(settings)), 
	CONSTRAINT fk_loops_run_id FOREIGN KEY(run_id) REFERENCES runs (id)
)
;
CREATE INDEX ix_loops_changed ON loops (run_id, revision)
;
CREATE INDEX ix_loops_open ON loops (run_id, id) WHERE status IN (100, 102, 202)
;
CREATE UNIQUE INDEX uq_loops_active ON loops (run_id) WHERE status IN (102, 202)
;
CREATE TABLE packets (
	run_id INTEGER NOT NULL, 
	turn BIGINT NOT NULL, 
	base_turn BIGINT DEFAULT 0 NOT NULL, 
	depth BIGINT DEFAULT 0 NOT NULL, 
	length BIGINT DEFAULT 0 NOT NULL, 
	layout TEXT NOT NULL, 
	note TEXT DEFAULT '' NOT NULL, 
	calls BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_packets PRIMARY KEY (run_id, turn), 
	CONSTRAINT fk_packets_run_id FOREIGN KEY(run_id) REFERENCES runs (id)
)
;
CREATE TABLE turns (
	run_id INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	loop BIGINT NOT NULL, 
	request TEXT NOT NULL, 
	result TEXT, 
	begin_ms BIGINT NOT NULL, 
	end_ms BIGINT DEFAULT 0 NOT NULL, 
	revision BIGINT NOT NULL, 
	end_project_rev BIGINT DEFAULT 0 NOT NULL, 
	end_global_rev BIGINT DEFAULT 0 NOT NULL, 
	packet_digest BLOB, 
	fingerprint BLOB, 
	CONSTRAINT pk_turns PRIMARY KEY (run_id, number), 
	CONSTRAINT ck_turns_request_json CHECK (request IS NULL OR json_valid(request)), 
	CONSTRAINT ck_turns_result_json CHECK (result IS NULL OR json_valid(result)), 
	CONSTRAINT fk_turns_run_id FOREIGN KEY(run_id) REFERENCES runs (id)
)
;
CREATE INDEX ix_turns_changed ON turns (run_id, revision)
;
CREATE UNIQUE INDEX uq_turns_open ON turns (run_id) WHERE end_ms = 0
;
CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs WHEN NEW.status <> OLD.status AND NOT (
     (OLD.status = 100 AND NEW.status IN (102, 499))
  OR (OLD.status = 102 AND NEW.status IN (200, 202, 500, 499))
  OR (OLD.status = 202 AND NEW.status IN (102, 200, 499))
  OR (OLD.status = 200 AND NEW.status IN (102, 499))
  OR (OLD.status = 500 AND NEW.status IN (102, 499))
  OR (OLD.status = 499 AND NEW.status = 102))
        BEGIN SELECT RAISE(ABORT, 'run status transition forbidden'); END
;
CREATE TRIGGER version_immutable BEFORE UPDATE OF id, entry_id, from_rev, writer, actor, create_ms, body_size_bytes, attributes_bytes, attributes ON versions BEGIN SELECT RAISE(ABORT, 'versions are immutable'); END
;
CREATE VIRTUAL TABLE search USING fts5 (path, body, scope_id UNINDEXED, scheme UNINDEXED, revision UNINDEXED,
        tokenize = 'unicode61 remove_diacritics 2')
;
INSERT INTO alembic_version VALUES ('r0003')
;
INSERT INTO meta VALUES ('min_code', '3')
;
INSERT INTO scopes VALUES (1, 'global', 0, 0)
;
