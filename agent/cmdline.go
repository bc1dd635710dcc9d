package agent

import (
	"net/url"
	"strings"

	"salvor/problem"
	"salvor/secret"
)

const maxCommandLine = 64 << 10 // the kernel's own bound is 2 to 4 KiB

// Parameters are what the kernel's command line tells the agent.
type Parameters struct {
	// APIURLs (ipa-api-url, comma-separated) are the servers to try, in this order.
	APIURLs []string
	// Token (ipa-agent-token) is set where the boot method carried it.
	Token secret.Value
	// Insecure (ipa-insecure) takes any certificate of the server.
	Insecure bool
	// CAFile (ipa-ca-file) holds the authorities to trust for the server.
	CAFile string
	// Driver (ipa-driver-name) is named at the old lookup endpoint.
	Driver string
	// RootPassword (salvor-root-password) sets the rescue password for root too.
	RootPassword bool
	// InspectionURLs (ipa-inspection-callback-url, comma-separated) take what an
	// inspection finds; Collectors (ipa-inspection-collectors) are what it looks at.
	// Either alone asks for an inspection, by default at the first servers.
	InspectionURLs []string
	Collectors     []string
}

// ParseCommandLine reads the agent's parameters out of a kernel command line and
// leaves the others alone. The last of several wins, as in the kernel: boot methods put their own last. Names are
// taken with dashes only, so that no other spelling stands for a name that was looked at.
func ParseCommandLine(line string) (Parameters, error) {
	p := Parameters{Driver: "agent_ipmitool"} // the default of the agents of that time
	if len(line) > maxCommandLine {
		return p, problem.Invalidf("kernel command line: longer than %d bytes", maxCommandLine)
	}
	for _, word := range splitCommandLine(line) {
		key, value, given := strings.Cut(word, "=")
		switch key {
		case "ipa-api-url":
			urls, err := apiURLs("ipa-api-url", value)
			if err != nil {
				return p, err
			}
			p.APIURLs = urls
		case "ipa-inspection-callback-url":
			urls, err := apiURLs("ipa-inspection-callback-url", value)
			if err != nil {
				return p, err
			}
			p.InspectionURLs = urls
		case "ipa-inspection-collectors":
			p.Collectors = splitCollectors(value)
		case "ipa-agent-token":
			p.Token = secret.New(value)
		case "ipa-insecure":
			p.Insecure = !given || isTrue(value)
		case "ipa-ca-file":
			p.CAFile = value
		case "ipa-driver-name":
			p.Driver = value
		case "salvor-root-password":
			p.RootPassword = !given || isTrue(value)
		}
	}
	return p, nil
}

// apiURLs refuses what is not http(s) now: an agent that retries a typing error for
// ever says nothing on the console that helps.
func apiURLs(key, value string) ([]string, error) {
	var urls []string
	for _, part := range strings.Split(value, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		u, err := url.Parse(part)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
			return nil, problem.Invalidf("kernel command line: %s holds %q: want http(s)://host:port", key, part)
		}
		urls = append(urls, part)
	}
	return urls, nil
}

func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "1", "true", "yes", "on", "t", "y":
		return true
	}
	return false
}

// splitCommandLine splits at white space outside of double quotes and drops the
// quotes, as the kernel does. What stands after a lone -- is init's, but boot
// loaders append there, so it is read too.
func splitCommandLine(line string) []string {
	var fields []string
	var word strings.Builder
	quoted, inside := false, false
	flush := func() {
		if inside {
			fields = append(fields, word.String())
		}
		word.Reset()
		inside = false
	}
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case b == '"':
			quoted, inside = !quoted, true
		case !quoted && (b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == 0):
			flush()
		default:
			word.WriteByte(b)
			inside = true
		}
	}
	flush()
	return fields
}
