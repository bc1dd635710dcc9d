package service

import (
	"context"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// JoinTokens is the service of join tokens.
type JoinTokens struct {
	*serviceCore
	*record.Collection[compute.JoinToken, compute.JoinTokenFilter]
}

func newJoinTokens(c *serviceCore) *JoinTokens {
	return &JoinTokens{serviceCore: c, Collection: record.NewCollection("join token", c.store.JoinTokens(), c.jobs, c.now)}
}

// maxTokenLife bounds how long a join token may wait for its host.
const maxTokenLife = 30 * 24 * time.Hour

// Issue makes a token that lets one new host in within ttl. The clear text is told here only.
func (s *JoinTokens) Issue(ctx context.Context, ttl time.Duration, note string, who record.Asker) (*compute.JoinToken, secret.Value, error) {
	return s.IssueFor(ctx, ttl, note, "", who)
}

// IssueFor makes a token for a host that is known already, named by UUID or name, which lost its key; an empty host is any new one.
func (s *JoinTokens) IssueFor(ctx context.Context, ttl time.Duration, note, host string, who record.Asker) (*compute.JoinToken, secret.Value, error) {
	if host != "" {
		h, err := s.host(ctx, host)
		if err != nil {
			return nil, secret.Value{}, err
		}
		host = h.ID
	}
	if ttl <= 0 || ttl > maxTokenLife {
		return nil, secret.Value{}, problem.Invalidf("a join token lasts more than no time and at most %s", maxTokenLife)
	}
	if len(note) > 255 {
		return nil, secret.Value{}, problem.Invalidf("a note has at most 255 characters")
	}
	clear := secret.NewToken("")
	t := &compute.JoinToken{Record: record.Record{ID: uuid.NewString()}, Digest: clear.Digest(), ExpiresAt: s.now().Add(ttl), HostID: host, Note: note}
	if err := s.Create(ctx, t, who); err != nil {
		return nil, secret.Value{}, err
	}
	return t, clear, nil
}

// useToken takes a join token for a host: whoever saves its row first has it. The same host may show it again with the same key,
// for its first answer may have been lost.
func (s *Hosts) useToken(ctx context.Context, tx job.Tx, token secret.Value, hostID, key string) (*compute.JoinToken, error) {
	refused := problem.Forbiddenf("join: the token is not known, used up, or over; ask for another one")
	found, err := s.store.JoinTokens().List(ctx, tx, compute.JoinTokenFilter{Digest: token.Digest()}, pageOf(1))
	if err != nil {
		return nil, err
	}
	if token.Empty() || len(found) == 0 || !s.now().Before(found[0].ExpiresAt) {
		return nil, refused
	}
	t := found[0]
	switch {
	case t.HostID != "" && t.HostID != hostID:
		return nil, problem.Forbiddenf("join: the token is for another host than %s; ask for one for it", hostID)
	case t.UsedBy == hostID && t.UsedKey == key:
		return t, nil
	case t.UsedBy != "":
		return nil, refused
	}
	t.UsedBy, t.UsedAt, t.UsedKey = hostID, s.now(), key
	return t, conflictToChanged(s.store.JoinTokens().Save(tx, t))
}
