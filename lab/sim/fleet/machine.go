package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"

	"salvor/problem"
	"salvor/secret"
)

// simulatedMachine is small: there may be a hundred thousand.
type simulatedMachine struct {
	mu      sync.Mutex
	fault   bmcFault
	rescued bool // it is one of those that are put into rescue
	held    bool // or kept waiting in one
	waits   bool // it is in rescue wait and in maintenance: its agent may begin
	on      bool
	boots   int // how often it was switched on; an older boot's agent is gone
	target  string
	enabled string
	image   string // URL in the CD drive
	token   secret.Value
	url     string // where its agent is called back
	opened  bool   // by the end of a rescue: its agent only answers
}

// Names of Redfish.
const (
	targetNone = "None"
	targetPXE  = "Pxe"
	targetCD   = "Cd"

	enabledNever = "Disabled"
	enabledOnce  = "Once"
)

const (
	mediaTimeout = time.Minute
	maxMedium    = 4 << 30
)

// power is the machine that is switched on or off.
func (f *Fleet) power(i int, on bool) {
	m := &f.machines[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on == on {
		return
	}
	if !m.token.Empty() {
		f.tokens.remove(m.token)
		if !m.opened {
			f.counts.agents.Add(-1)
		}
	}
	m.token, m.url, m.on, m.opened = secret.Value{}, "", on, false
	if !on {
		return
	}
	m.boots++
	boot, target, image := m.boots, m.target, m.image
	if m.enabled == enabledNever {
		target = targetNone
	}
	if m.enabled == enabledOnce {
		m.target, m.enabled = targetNone, enabledNever
	}
	switch {
	case target == targetCD && image != "":
	case target == targetPXE:
		image = ""
	default:
		return // its own system
	}
	time.AfterFunc(f.config.Boot, func() { f.ramdisk(i, boot, image) })
}

// running tells whether a boot of the machine is the present one.
func (m *simulatedMachine) running(boot int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on && m.boots == boot
}

// carried is how a kernel's command line gives an agent its token.
var carried = regexp.MustCompile(`ipa-agent-token=([A-Za-z0-9_-]{16,128})[^A-Za-z0-9_-]`)

// readToken reads a boot medium until it tells the agent token. Empty: it carries none.
func (f *Fleet) readToken(ctx context.Context, url string) (secret.Value, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return secret.Value{}, problem.Invalidf("the medium in its drive has no URL that can be fetched")
	}
	answer, err := f.media.Do(req)
	if err != nil {
		return secret.Value{}, problem.Unavailablef("fetch its medium: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return secret.Value{}, problem.Unavailablef("fetch its medium: %s", answer.Status)
	}
	return findAgentToken(io.LimitReader(answer.Body, maxMedium))
}

// findAgentToken finds the token in whatever it reads, part by part; a token may lie over the border of two.
func findAgentToken(r io.Reader) (secret.Value, error) {
	const part, overlap = 64 << 10, 256
	b := make([]byte, 0, part+overlap)
	for {
		n, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+n]
		if bytes.Contains(b, []byte("ipa-agent-token=")) {
			if found := carried.FindSubmatch(b); found != nil {
				return secret.New(string(found[1])), nil
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return secret.Value{}, nil
		}
		if err != nil {
			return secret.Value{}, problem.Unavailablef("read its medium: %w", err)
		}
		b = b[:copy(b, b[len(b)-overlap:])]
	}
}
