package fault

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"salvor/client"
	"salvor/driver/drivertest"
	"salvor/wire/agent"
	"salvor/wire/ironic"
)

// boot is the machine coming up: from its disk, or from a medium of ours.
func (m *machine) boot(on bool, used drivertest.Override, image string) {
	if !on {
		return
	}
	if used.Target != "Cd" || image == "" || m.deaf {
		return
	}
	m.ramdisks.Go(func() {
		// A medium that was taken away before it was read boots nothing.
		if err := m.ramdisk(image); err != nil {
			m.t.Logf("ramdisk: %v", err)
		}
	})
}

// ramdisk heartbeats until it was taken, and takes one command; then its door is shut.
func (m *machine) ramdisk(image string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	token, err := tokenOf(ctx, image)
	if err != nil {
		return err
	}
	ended := make(chan struct{}, 1)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(agent.Result{ID: "1", Name: agent.FinalizeRescue, Status: agent.Succeeded})
		select {
		case ended <- struct{}{}:
		default:
		}
	}))
	defer door.Close()
	for {
		err := m.w.api.Heartbeat(ctx, 68, m.id, ironic.Heartbeat{CallbackURL: door.URL, AgentVersion: "9.1.0", AgentToken: &token})
		if err != nil && client.StatusOf(err) != http.StatusConflict {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-m.t.Context().Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		if !m.bmc.On() {
			return nil
		}
	}
}

// tokenOf reads the medium as firmware does.
func tokenOf(ctx context.Context, image string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, image, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(text), "ipa-agent-token=")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", io.ErrUnexpectedEOF
	}
	return fields[0], nil
}
