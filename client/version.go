package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Headers of the microversion talk.
const (
	VersionHeader    = "X-OpenStack-Ironic-API-Version"
	MinVersionHeader = "X-OpenStack-Ironic-API-Minimum-Version"
	MaxVersionHeader = "X-OpenStack-Ironic-API-Maximum-Version"
)

// Version is the N of a microversion 1.N; 0 means none.
type Version int

func (v Version) String() string { return "1." + strconv.Itoa(int(v)) }

// ParseVersion reads "1.N".
func ParseVersion(text string) (Version, error) {
	major, minor, ok := strings.Cut(text, ".")
	n, err := strconv.ParseUint(minor, 10, 16)
	if !ok || major != "1" || err != nil || n == 0 {
		return 0, fmt.Errorf("microversion %.20q: want 1.N", text)
	}
	return Version(n), nil
}

// Range is what a server serves. Both ends are 0 where it does not say.
type Range struct{ Min, Max Version }

// Pick is the highest version that both sides know, given the highest that we
// know; 0 if there is none.
func (r Range) Pick(ours Version) Version {
	if r.Max != 0 && r.Max < ours {
		ours = r.Max
	}
	if ours < r.Min {
		return 0
	}
	return ours
}

// Versions asks the server which microversions it serves, once: a second call gives
// the first one's answer.
func (c *Client) Versions(ctx context.Context) (Range, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served != nil {
		return *c.served, nil
	}
	request := Request{Method: http.MethodGet, Path: "/v1"}
	answer, err := c.send(ctx, request)
	if err != nil {
		return Range{}, err
	}
	served := answer.versions()
	if served.Max == 0 && answer.Status >= 500 {
		return Range{}, request.refused(answer)
	}
	if served.Max != 0 || answer.Status < 300 {
		c.served = &served
	}
	return served, nil
}

// versions reads the range from the headers, else from the body of GET /v1.
func (a *Answer) versions() Range {
	low, errLow := ParseVersion(a.Header.Get(MinVersionHeader))
	high, errHigh := ParseVersion(a.Header.Get(MaxVersionHeader))
	if errLow == nil && errHigh == nil && low <= high {
		return Range{low, high}
	}
	var root struct {
		Version struct {
			Min string `json:"min_version"`
			Max string `json:"version"`
		} `json:"version"`
	}
	if json.Unmarshal(a.Body, &root) != nil {
		return Range{}
	}
	low, errLow = ParseVersion(root.Version.Min)
	high, errHigh = ParseVersion(root.Version.Max)
	if errLow != nil || errHigh != nil || low > high {
		return Range{}
	}
	return Range{low, high}
}
