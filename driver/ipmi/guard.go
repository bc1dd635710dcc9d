package ipmi

import (
	"bytes"
	"crypto/hmac"
	"sync/atomic"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/secret"
)

// sessionGuard makes sure that what is believed of a session comes from who knows the
// password. The library decrypts answers without looking at their authentication code,
// takes plain ones amid an encrypted session, and lets the answer to Open Session
// choose weaker algorithms than were asked for: one forged datagram could say that a
// machine is off. The guard reads the handshake along and derives the session's key.
type sessionGuard struct {
	password  secret.Value
	asked     sessionAlgorithms
	console   []byte // random number of our side
	bmc       []byte // random number of the BMC
	role      byte
	username  string
	key       []byte // K1; nil: nothing can be authenticated
	inSession bool
	// otherSuite: an answer opened a session with other algorithms than were asked for.
	otherSuite atomic.Bool
	// opened: the BMC has opened a session with one of the suites.
	opened atomic.Bool
	// waits: the last request of a session has no answer yet. suiteUnanswered: that was so when another suite was tried.
	waits           bool
	suiteUnanswered atomic.Bool
	// loginUnanswered: the BMC has opened a session, and has not answered the login (RAKP 1), whatever it did of other suites.
	loginUnanswered atomic.Bool
}

// sessionAlgorithms of a session: authentication, integrity, confidentiality.
type sessionAlgorithms [3]byte

// Where things lie in a datagram of RMCP+ (IPMI 2.0, 13.6 and 13.17 to 13.24).
const (
	atAuthType    = 4
	atPayloadType = 5
	atPayload     = 16
	rmcpPlus      = 6

	bitEncrypted     = 0x80
	bitAuthenticated = 0x40

	payloadOpenRequest = 0x10
	payloadOpenAnswer  = 0x11
	payloadRAKP1       = 0x12
	payloadRAKP2       = 0x13
	payloadRAKP3       = 0x14
	payloadRAKP4       = 0x15
)

// splitPayload splits a datagram into its payload's type and the rest after the session
// header; type 0 with a nil payload is everything that is not RMCP+ or too short.
func splitPayload(b []byte) (kind byte, body []byte) {
	if len(b) <= atPayload || b[atAuthType] != rmcpPlus {
		return 0, nil
	}
	return b[atPayloadType] & 0x3f, b[atPayload:]
}

// sent notes what the library says to the BMC.
func (g *sessionGuard) sent(b []byte) {
	switch kind, p := splitPayload(b); {
	case kind == payloadOpenRequest && len(p) >= 32:
		now := sessionAlgorithms{p[12], p[20], p[28]}
		if g.waits && now != g.asked {
			g.suiteUnanswered.Store(true)
		}
		g.asked, g.waits = now, true
		g.key, g.bmc, g.inSession = nil, nil, false
	case kind == payloadRAKP1 && len(p) >= 28 && len(p) >= 28+int(p[27]):
		g.loginUnanswered.Store(true)
		g.console, g.role, g.username = bytes.Clone(p[8:24]), p[24], string(p[28:28+int(p[27])])
	case kind == payloadRAKP3:
		g.inSession = true
		if sik, err := crypto.DeriveSIK(types.AuthAlg(g.asked[0]), g.console, g.bmc, g.role, g.username, crypto.PadPassword20([]byte(g.password.Reveal()))); err == nil {
			g.key, _ = crypto.DeriveK1(types.AuthAlg(g.asked[0]), sik)
		}
	}
}

// admits tells whether a datagram may be believed where the conversation stands now.
func (g *sessionGuard) admits(b []byte) bool {
	kind, p := splitPayload(b)
	switch {
	case kind == payloadOpenAnswer:
		g.waits = false
		// A refusal carries a status and no algorithms.
		if len(p) >= 36 && p[1] == 0 {
			if g.asked != (sessionAlgorithms{p[16], p[24], p[32]}) {
				g.otherSuite.Store(true)
				return false
			}
			g.opened.Store(true)
		}
		return true
	case kind == payloadRAKP2:
		g.loginUnanswered.Store(false)
		if len(p) >= 40 && p[1] == 0 && !g.inSession {
			g.bmc = bytes.Clone(p[8:24])
		}
		return true
	case kind == payloadRAKP4:
		return true // the library checks its code
	case !g.inSession:
		return true
	}
	return g.authentic(b)
}

func (g *sessionGuard) authentic(b []byte) bool {
	size := map[types.IntegrityAlg]int{
		types.IntegrityAlg_HMAC_SHA1_96: 12, types.IntegrityAlg_HMAC_MD5_128: 16, types.IntegrityAlg_MD5_128: 16, types.IntegrityAlg_HMAC_SHA256_128: 16,
	}[types.IntegrityAlg(g.asked[1])]
	if size == 0 || g.key == nil || len(b) < atPayload+size || b[atAuthType] != rmcpPlus || b[atPayloadType]&bitAuthenticated == 0 {
		return false
	}
	if g.asked[2] != byte(types.CryptAlg_None) && b[atPayloadType]&bitEncrypted == 0 {
		return false
	}
	signed, code := b[atAuthType:len(b)-size], b[len(b)-size:]
	want, err := crypto.SessionIntegrityAuthCode(types.IntegrityAlg(g.asked[1]), signed, g.key, g.password.Reveal())
	return err == nil && hmac.Equal(want, code)
}
