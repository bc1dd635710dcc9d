package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"salvor/agent/inventory"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/agent"
)

const (
	inspectionPath  = "/v1/continue_inspection"
	inspectionTries = 5
	inspectionRetry = 5 * time.Second
)

// inspect tells the server what the machine is made of, where the command line wants
// it. It comes before the lookup, for a server may learn only by it which NICs the node
// has; and as in the real agent, what goes wrong is no reason not to look up.
func (a *Agent) inspect(ctx context.Context) {
	urls := a.params.InspectionURLs
	if len(urls) == 0 && len(a.params.Collectors) > 0 {
		for _, api := range a.params.APIURLs {
			urls = append(urls, strings.TrimRight(api, "/")+inspectionPath)
		}
	}
	if len(urls) == 0 {
		return
	}
	found, err := a.look(ctx)
	if err == nil {
		err = a.report(ctx, urls, found)
	}
	if err != nil {
		a.log.Error("inspection failed; going on with the lookup", "error", err)
		return
	}
	a.log.Info("inspection data taken", "interfaces", len(found.Inventory.Interfaces), "disks", len(found.Inventory.Disks))
}

// look gathers what the collectors name.
func (a *Agent) look(ctx context.Context) (*wire.Inspection, error) {
	place := inventory.Place{Root: a.config.Root, CommandLine: a.config.CommandLine}
	wait := a.disksReady(ctx)
	all, err := place.Gather()
	if err != nil {
		return nil, err
	}
	used := a.params.Collectors
	if len(used) == 0 {
		used = []string{"default"}
	}
	found := &wire.Inspection{
		Inventory: all, RootDisk: inventory.Root(all.Disks), BootInterface: all.Boot.PXEInterface, Initiators: place.Initiators(),
		Configuration: &wire.InspectionConfiguration{Managers: []wire.Manager{{Name: "SalvorHardwareManager", Version: a.config.Version}}},
	}
	for _, name := range used {
		switch name {
		case "default":
		case "pci-devices":
			found.PCIDevices = place.PCIDevices()
		case "logs":
			if found.Logs, err = a.logs(); err != nil {
				return nil, err
			}
		default:
			a.log.Warn("this ramdisk has no such inspection collector", "collector", name)
			continue
		}
		found.Configuration.Collectors = append(found.Configuration.Collectors, name)
	}
	if wait != nil {
		text := wait.Error()
		found.Error = &text
	}
	return found, nil
}

// report posts to the first server that takes it.
func (a *Agent) report(ctx context.Context, urls []string, found *wire.Inspection) error {
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	transport, err := a.transport()
	if err != nil {
		return err
	}
	poster := &http.Client{Transport: transport, Timeout: requestTimeout}
	for try := range inspectionTries {
		var again bool
		for _, url := range urls {
			if again, err = postInspection(ctx, poster, url, a.version(), a.params.Token, body); err == nil {
				return nil
			}
			a.log.Warn("inspection data not taken", "server", withoutQuery(url), "try", try+1, "error", err)
			if !again {
				return err
			}
		}
		if try+1 < inspectionTries {
			if err := a.sleep(ctx, a.spread(inspectionRetry)); err != nil {
				return err
			}
		}
	}
	return err
}

// withoutQuery cuts the query off a URL: it may hold the proof of this boot, and the log must not show it.
func withoutQuery(url string) string {
	plain, _, _ := strings.Cut(url, "?")
	return plain
}

// postInspection is one try; again tells whether another may have more luck.
func postInspection(ctx context.Context, poster *http.Client, url, product string, token secret.Value, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, problem.Invalidf("ipa-inspection-callback-url cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", product)
	if !token.Empty() {
		req.Header.Set(wire.TokenHeader, token.Reveal())
	}
	resp, err := poster.Do(req)
	if err != nil {
		var quoted *neturl.Error
		if errors.As(err, &quoted) {
			err = quoted.Err // the outer error quotes the URL, which holds the proof of this boot
		}
		return true, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return true, err
	}
	if resp.StatusCode < 300 {
		return false, nil
	}
	again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusConflict
	return again, fmt.Errorf("%d: %.300s", resp.StatusCode, text)
}

// splitCollectors splits ipa-inspection-collectors.
func splitCollectors(value string) []string {
	var out []string
	for _, name := range strings.Split(value, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
