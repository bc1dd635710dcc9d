package redfish

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

var _ driver.BMCRecorder = (*Driver)(nil)

// What one question reads at most: a row of a job holds the answer.
const (
	maxRecordedBytes = 1 << 20
	maxRecordedTime  = 15 * time.Second
)

// RecordResources reads resources and replaces every text and number whose property is not known to be about the make of a machine.
func (d *Driver) RecordResources(ctx context.Context, n *metal.Node, a metal.RecordArgs) ([]metal.RecordedResource, error) {
	if len(a.Paths) == 0 || len(a.Paths) > metal.MaxRecorded {
		return nil, problem.Invalidf("record resources of node %s: redfish: want 1 to %d paths, not %d", n.ID, metal.MaxRecorded, len(a.Paths))
	}
	var out []metal.RecordedResource
	err := d.with(ctx, n, "record resources", func(s *bmcSession) error {
		began, size := time.Now(), 0
		for i, path := range a.Paths {
			if i > 0 && (size >= maxRecordedBytes || time.Since(began) >= maxRecordedTime) {
				break
			}
			one, length, err := s.record(path, ownerHider{key: a.Key})
			if err != nil {
				return err
			}
			size += length
			out = append(out, one)
		}
		return nil
	})
	return out, err
}

// record reads a resource, and of a list all pages. An error is one that the next resource would meet too.
func (s *bmcSession) record(path string, names ownerHider) (out metal.RecordedResource, size int, err error) {
	out = metal.RecordedResource{Path: path, Name: names.path(path)}
	if !isPath(path) || !strings.HasPrefix(path, strings.TrimRight(conversation.RootPath, "/")) {
		return out, 0, problem.Invalidf("%q is no path of a Redfish resource", driver.Sanitize(path))
	}
	before, doc := s.bmc.Received(), map[string]any{}
	_, err = s.bmc.Get(path, &doc)
	switch status := refusal.StatusOf(err); {
	case status != 0 && !errors.Is(err, driver.ErrLogin):
		out.Problem = driver.StatusText(status)
		return out, 0, nil
	case problem.Is(err, problem.Unavailable) && s.bmc.Context().Err() == nil:
		out.Problem = "no answer that makes sense"
		return out, 0, nil
	case err != nil:
		return out, 0, err
	}
	if err := s.allPages(doc); err != nil {
		out.Problem = "a further page of the list could not be read"
		return out, 0, s.bmc.Context().Err()
	}
	size = s.bmc.Received() - before
	if size > maxRecordedBytes {
		out.Problem = "larger than 1 MiB"
		return out, 0, nil
	}
	out.Links = linksOf(doc)
	out.Document, _ = names.value("", doc).(map[string]any)
	return out, size, nil
}

// isPath tells whether a text is a path on the BMC as it stands.
func isPath(text string) bool {
	return strings.HasPrefix(text, "/") && link.Join(conversation.RootPath, text) == text
}

// allPages puts the members of a list's further pages into its first one.
func (s *bmcSession) allPages(doc map[string]any) error {
	const next = "Members@odata.nextLink"
	for range conversation.MaxPages {
		path, _ := doc[next].(string)
		if path == "" {
			return nil
		}
		page := map[string]any{}
		if _, err := s.bmc.Get(path, &page); err != nil {
			return err
		}
		before, _ := doc["Members"].([]any)
		more, _ := page["Members"].([]any)
		doc["Members"], doc[next] = append(before, more...), page[next]
	}
	delete(doc, next)
	return nil
}

// privateResources are those that a recording leaves out: logs, accounts, sessions, certificates, and what is the same everywhere.
var privateResources = regexp.MustCompile(`(?i)/(Entries|Accounts|Sessions|Certificates|Subscriptions|Tasks|Jobs|JsonSchemas|Schemas|\$metadata|odata)(/|$)`)

// linksOf are the paths of the resources that a document links to, in their order. A link to a part of a document is one to the document.
func linksOf(doc map[string]any) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if path, ok := v[name].(string); ok && (name == "@odata.id" || name == "@Redfish.ActionInfo" || name == "Uri") {
					path, _, _ = strings.Cut(path, "#")
					path = strings.TrimRight(path, "/")
					if isPath(path) && strings.HasPrefix(path, "/redfish/v1/") && !privateResources.MatchString(path) && !slices.Contains(out, path) {
						out = append(out, path)
					}
				}
				walk(v[name])
			}
		}
	}
	walk(doc)
	return out
}

// ownerHider takes out of documents what tells of the machine's owner.
type ownerHider struct {
	key string
}

// publicTexts are the properties whose texts say how a machine of this make is built, not whose it is.
var publicTexts = []string{
	"@odata.type", "RedfishVersion", "Vendor", "Product", "Manufacturer", "Model", "BiosVersion", "FirmwareVersion", "FirmwarePackageVersion", "Version",
	"SystemType", "ManagerType", "ChassisType", "PowerState", "State", "Health", "HealthRollup", "IndicatorLED", "BootSourceOverrideTarget",
	"BootSourceOverrideEnabled", "BootSourceOverrideMode", "StopBootOnFault", "MediaTypes", "ConnectedVia", "TransferMethod", "TransferProtocolType", "Protocol",
	"SupportedProtocols", "MediaType", "RAIDType", "RAIDTypes", "SupportedRAIDTypes", "VolumeType", "InterfaceType", "LinkStatus", "ProcessorArchitecture",
	"ProcessorType", "InstructionSet", "AttributeRegistry", "Registry", "Languages", "Language", "title", "ResetType", "SupportedApplyTimes", "ApplyTime",
	"SecureBootMode", "SecureBootCurrentBoot", "NetDevFuncType", "NetDevFuncCapabilities", "DataType", "AllowableValues", "MessageId", "Severity",
	"ConnectTypesSupported", "BootMode", "AttributeName", "Type",
}

// publicNumbers are the properties whose numbers do.
var publicNumbers = []string{
	"Members@odata.count", "CapacityBytes", "TotalSystemMemoryGiB", "Count", "TotalCores", "TotalThreads", "MaxImageSizeBytes", "SessionTimeout", "MaxConcurrentSessions",
	"LowerBound", "UpperBound", "MinLength", "MaxLength", "CapacityMiB", "CapacityMB", "SpeedMbps", "OptimumIOSizeBytes", "BlockSizeBytes",
}

// pathProperties hold paths of the service.
var pathProperties = []string{"@odata.id", "target", "@Redfish.ActionInfo", "Uri", "Id", "MemberId"}

const hiddenText = "hidden"

// value is a value of a document without what is private. What is true or false, empty or null stays as it is.
func (a ownerHider) value(property string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			within := name
			if name == "Name" && property == "Parameters" { // of an action
				within = "title"
			}
			out[name] = a.value(within, member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = a.value(property, e)
		}
		return out
	case float64:
		if slices.Contains(publicNumbers, property) {
			return v
		}
		return 0
	case string:
		switch {
		case v == "" || slices.Contains(publicTexts, property):
			return v
		case strings.HasSuffix(property, "@Redfish.AllowableValues") && plainValue.MatchString(v) && !isHexadecimal(v): // others have addresses of network cards in them
			return v
		case slices.Contains(pathProperties, property) && (isPath(v) || !strings.Contains(v, "/")):
			return a.path(v)
		}
		return hiddenText
	}
	return v
}

// plainValue is an allowable value that is a name.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// path renames the parts of a path that are no public names, each the same way in all documents, so that links lead to their resources.
func (a ownerHider) path(path string) string {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if isOfAction := i > 0 && slices.Contains(parts[:i], "Actions"); !isPublicName(part, isOfAction) {
			sum := hmac.New(sha256.New, []byte(a.key))
			sum.Write([]byte(part))
			parts[i] = "x" + hex.EncodeToString(sum.Sum(nil)[:4])
		}
	}
	return strings.Join(parts, "/")
}

// isHexadecimal tells whether a name is an address or a UUID that happens to look like words.
func isHexadecimal(name string) bool {
	digits := 0
	for _, r := range name {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f', r >= 'A' && r <= 'F':
			digits++
		case r != '-' && r != ':':
			return false
		}
	}
	return digits >= 8
}
