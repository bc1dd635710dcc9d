-- Tokens of the API: of each only a digest is kept.

CREATE TABLE api_token (
    num        {{serial}},
    id         {{text}} NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    name       {{text}} NOT NULL,
    digest     {{text}} NOT NULL,
    project    {{text}} NOT NULL,
    body       {{text}} NOT NULL
);
CREATE UNIQUE INDEX api_token_name ON api_token (name);
CREATE UNIQUE INDEX api_token_digest ON api_token (digest);
CREATE INDEX api_token_project ON api_token (project, num);

-- When a token was used last, apart from its row: many processes write it, and none of them changes the token.
CREATE TABLE api_token_use (
    token_id {{text}} NOT NULL PRIMARY KEY REFERENCES api_token (id) ON DELETE CASCADE,
    used_at  BIGINT NOT NULL
);

-- Signed tokens that were ended before their time.
CREATE TABLE ended_token (
    id    {{text}} NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
