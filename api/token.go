package api

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/access"
	"salvor/secret"
)

const (
	// TokenMemory is how long what the store said of a token is believed: so long a token that was revoked, in whichever process,
	// still opens in another.
	TokenMemory = time.Second
	// tokenUseTurn is how often the use of tokens is written.
	tokenUseTurn = 5 * time.Second
	// tokenQuestion bounds one look into the store.
	tokenQuestion = 10 * time.Second
)

// TokenKeeper has the tokens of the API, as access.Tokens does.
type TokenKeeper interface {
	// ByText finds a token that is good now; nil: there is none.
	ByText(ctx context.Context, text secret.Value) (*access.Token, error)
	// Used notes when tokens, by id, were used last.
	Used(ctx context.Context, used map[string]time.Time) error
}

// TokenAuth authenticates by the tokens of the API. It is safe for use by several goroutines.
type TokenAuth struct {
	tokens TokenKeeper
	now    func() time.Time
	log    *slog.Logger
	memory *Memory[*access.Token]

	mu   sync.Mutex
	used map[string]time.Time // since the last turn
}

// NewTokenAuth authenticates by the tokens of a keeper.
func NewTokenAuth(tokens TokenKeeper, now func() time.Time, log *slog.Logger) *TokenAuth {
	return &TokenAuth{
		tokens: tokens, now: now, log: log, used: map[string]time.Time{},
		memory: NewMemory[*access.Token](MemoryLimits{Most: rememberTokens, Refuse: TokenMemory, Question: tokenQuestion}, now),
	}
}

// TokenText is the token that a request comes with, in X-Auth-Token or as a bearer's; empty: none.
func TokenText(r *http.Request) string {
	if t := r.Header.Get("X-Auth-Token"); t != "" {
		return t
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(text)
	}
	return ""
}

// Authenticate checks the token that a request comes with.
func (a *TokenAuth) Authenticate(r *http.Request) (access.Principal, error) {
	t, err := a.Token(r.Context(), TokenText(r))
	if err != nil {
		return access.Principal{}, err
	}
	return t.Principal(), nil
}

// Token gives the token with this text; a 401 if it is not good.
func (a *TokenAuth) Token(ctx context.Context, text string) (*access.Token, error) {
	if !access.IsToken(text) {
		return nil, errNoToken
	}
	t, err := a.memory.Find(ctx, text, func(ctx context.Context) (Verdict[*access.Token], error) { return a.ask(ctx, secret.New(text)) })
	if err != nil {
		return nil, err
	}
	now := a.now()
	if t.Expired(now) {
		return nil, errNoToken
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[t.ID] = now
	return t, nil
}

func (a *TokenAuth) ask(ctx context.Context, text secret.Value) (Verdict[*access.Token], error) {
	until := a.now().Add(TokenMemory) // counted from before the look
	t, err := a.tokens.ByText(ctx, text)
	switch {
	case err != nil:
		a.log.Error("look for a token", "error", err)
		return Verdict[*access.Token]{}, Later(time.Second, "it cannot be told now whose token this is; ask again")
	case t == nil:
		return Verdict[*access.Token]{}, errNoToken
	}
	return Verdict[*access.Token]{Value: t, Fresh: until, Stale: until}, nil
}

// RunUse writes when tokens were used, some seconds later and many at once, until ctx ends.
func (a *TokenAuth) RunUse(ctx context.Context) {
	ticker := time.NewTicker(tokenUseTurn)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.writeUse(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenQuestion)
			defer cancel()
			a.writeUse(last)
			return
		}
	}
}

func (a *TokenAuth) writeUse(ctx context.Context) {
	a.mu.Lock()
	used := a.used
	a.used = map[string]time.Time{}
	a.mu.Unlock()
	if len(used) == 0 {
		return
	}
	if err := a.tokens.Used(ctx, used); err != nil && ctx.Err() == nil {
		a.log.Error("write when tokens were used", "error", err)
		a.mu.Lock()
		defer a.mu.Unlock()
		maps.Copy(used, a.used) // what came meanwhile is newer
		a.used = used
	}
}

var errNoToken = &Error{
	Status: http.StatusUnauthorized, Text: "Authorization required: a valid token is required (\"salvor token create\" makes one).",
	Header: http.Header{"Www-Authenticate": {`Bearer realm="salvor"`}},
}

func retryAfterSeconds(d time.Duration) string { return strconv.Itoa(max(1, int(d/time.Second))) }

var _ TokenKeeper = (*access.Tokens)(nil)
