package metal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// CallbackParam is the kernel parameter with the URL to which an inspection's findings go.
const CallbackParam = "ipa-inspection-callback-url"

// ProofArg is the query argument of that URL that proves findings of an agent which sends no token with them, as
// ironic-python-agent: agents post to the URL as it is written.
const ProofArg = "boot_proof"

// FindingsProof derives the value of ProofArg from the agent token of a boot: 43 URL-safe characters. It is good for the findings of
// that boot, which are taken once, and gives the token away to nobody.
func FindingsProof(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("inspection findings"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ProvenCallback gives the kernel parameter with the proof of the boot added to its URL; another parameter is given as it is.
func ProvenCallback(param, token string) string {
	if !strings.HasPrefix(param, CallbackParam+"=") {
		return param
	}
	mark := "?"
	if strings.Contains(param, "?") {
		mark = "&"
	}
	return param + mark + ProofArg + "=" + FindingsProof(token)
}
