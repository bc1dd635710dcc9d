package metal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// CallbackParam is the kernel parameter with the URL to which an inspection's findings go.
const CallbackParam = "ipa-inspection-callback-url"

// ProofArg is the query argument of that URL that proves the findings of an agent that sends no token. ironic-python-agent is one: it posts
// to the URL as the kernel parameter gives it.
const ProofArg = "boot_proof"

// FindingsProof derives the value of ProofArg from the agent token of a boot: 43 URL-safe characters. It proves the findings
// of that boot, which salvor takes once, and does not reveal the token.
func FindingsProof(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("inspection findings"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// AddFindingsProof adds the proof of the boot to the URL of the kernel parameter CallbackParam. It returns any other parameter unchanged.
func AddFindingsProof(param, token string) string {
	if !strings.HasPrefix(param, CallbackParam+"=") {
		return param
	}
	mark := "?"
	if strings.Contains(param, "?") {
		mark = "&"
	}
	return param + mark + ProofArg + "=" + FindingsProof(token)
}
